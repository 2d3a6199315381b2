"""From an import to an answer: the services, the agent and a real engine together."""

import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from tests.integration.inference.test_inference import Routes, want
from tests.integration.models.test_models import delete
from tests.support.agents.engine_machine import say
from tests.support.environments.postgres import reachable_folder
from tests.support.factories.toy_model import make_adapter, make_model
from tests.support.services.platform import SERVICES, Platform, folder_files, running_platform
from tests.support.waiting import until

from windlass.api.clusters.v1 import clusters_pb2

pytestmark = pytest.mark.torch
START_SECONDS = 240.0


@pytest.fixture(scope="module")
def toy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("toy")
    base = make_model(root / "base")
    make_adapter(base, root / "one", seed=1)
    make_adapter(base, root / "two", seed=2)
    return root


@pytest.fixture
def folder() -> Iterator[Path]:
    with reachable_folder() as folder:
        yield folder


@pytest.fixture
async def platform(database_url: str, folder: Path) -> AsyncIterator[Platform]:
    services = (*SERVICES, "agent")
    async with running_platform(database_url, folder / "data", services=services) as platform:
        yield platform


async def test_a_model_and_its_adapter_answer_from_cold(platform: Platform, toy: Path) -> None:
    routes = Routes(platform)
    base = await platform.import_model("toy", folder_files(toy / "base"), **platform.tenant())
    await platform.register_adapter("ft:toy:one", base, folder_files(toy / "one"))
    began = time.monotonic()
    await want(platform, "ft:toy:one")
    await until(lambda: routes.addresses("ft:toy:one"), START_SECONDS)
    print(f"cold start of engine and adapter: {time.monotonic() - began:.2f} s")
    endpoint = routes.known["proj-a", "ft:toy:one"].endpoints[0]
    status = clusters_pb2.WorkloadStatus(endpoint=endpoint.address)
    tuned, plain = await say(status, "ft:toy:one"), await say(status, "toy")
    assert tuned != plain
    # A name that is there again is another version, loaded while the engine runs.
    began = time.monotonic()
    await delete(platform, "ft:toy:one")
    files = folder_files(toy / "two")
    again = await platform.register_adapter("ft:toy:one", base, files, source="two")
    await want(platform, "ft:toy:one")

    def moved() -> bool:
        route = routes.known.get(("proj-a", "ft:toy:one"))
        return route is not None and route.version_id == again.version_id and bool(route.endpoints)

    await until(moved, START_SECONDS)
    print(f"warm load of an adapter: {time.monotonic() - began:.2f} s")
    assert await say(status, "ft:toy:one") not in (tuned, plain)
    await routes.close()
