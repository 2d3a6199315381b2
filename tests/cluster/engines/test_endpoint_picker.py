"""The endpoint picker of a real InferencePool (EPP) chooses among replicas of ours.

The replicas answer on this machine, in the place of pods that are rows of the API server; their
load is told as keepers tell it. tests/integration/tunnel has one that lies and hangs.
"""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import pytest_asyncio
from tests.cluster.fixtures import Clusters
from tests.cluster.stages.picker import READY, RealPicker, real_picker
from tests.support.agents.replica_stage import (
    HOSTS,
    MODEL,
    ReplicaStage,
    ask,
    check_choices,
    replica_stage,
    said,
    serve,
)
from tests.support.waiting import until

from windlass_agent.engines.load import EngineLoad
from windlass_agent.keeper.health import health

pytestmark = [pytest.mark.timeout(600), pytest.mark.asyncio(loop_scope="module")]
IDLE, BUSY = EngineLoad(), EngineLoad(running=8, waiting=40, cache_used=0.9)
RUNNING = "inference_objective_running_requests"


@dataclass
class Site:
    """The stage with EPP before it, and the load of each replica."""

    picker: RealPicker
    stage: ReplicaStage
    loads: dict[str, EngineLoad | None]

    def prefer(self, *names: str) -> None:
        """Has all other replicas be busy."""
        for name in self.loads:
            self.loads[name] = IDLE if name in names else BUSY

    async def settles(self, name: str, **fields: Any) -> None:
        """Waits until a new conversation goes to a replica."""
        asked = 0

        async def answered() -> str:
            nonlocal asked
            asked += 1
            prompt = f"{asked} is new, and so is what follows. " * 8
            said = await ask(await self.stage.open(), prompt=prompt, **fields)
            return str(said["by"])

        await until(answered, 60, holds=lambda found: found == name, every=0.05)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def site(clusters: Clusters, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Site]:
    folder: Path = tmp_path_factory.mktemp("epp")
    async with AsyncExitStack() as stack:
        cluster = stack.enter_context(clusters.open("east"))
        picker = stack.enter_context(real_picker(cluster, folder))
        opened = replica_stage(picker.address, ca=picker.ca, timeout_ms=5000)
        stage = await stack.enter_async_context(opened)
        made = Site(picker, stage, dict.fromkeys(HOSTS, IDLE))
        pool = picker.make_pool(MODEL)
        for name, host in HOSTS.items():
            keeper = kept(made, name)
            app = health(keeper, keeper.drained, tells_load=True)
            await serve(stack, app, host, picker.load_port)
            picker.make_pod(name, host, MODEL)
        # Of another model, at an address where nobody of ours is.
        picker.make_pod("stranger", "127.0.0.9", "other")
        await picker.start(pool)
        yield made


def kept(site: Site, name: str) -> Any:
    """A keeper that serves, with the load that the test says."""

    class Kept(SimpleNamespace):
        @property
        def load(self) -> EngineLoad | None:
            return site.loads[name]

    return Kept(
        serves=True, unanswered=False, has_weights=SimpleNamespace(is_set=bool), drained=None
    )


async def test_the_replica_with_the_shortest_queue_answers(site: Site) -> None:
    async def prefer(name: str) -> None:
        site.prefer(name)
        await site.settles(name)

    await check_choices(site.stage, prefer)


async def test_a_conversation_goes_on_where_it_began(site: Site) -> None:
    site.prefer(*HOSTS)
    turns = "The harbour was empty, and the boats were gone. " * 40
    first = await ask(await site.stage.open(), prompt=turns)
    for number in range(6):
        turns += f"It was {number} o'clock. "
        assert await ask(await site.stage.open(), prompt=turns) == first


async def test_only_replicas_that_have_the_adapter_are_its_choice(site: Site) -> None:
    before = site.stage.replicas
    loaded = {"ft:a": "mv-1"}
    site.stage.replicas = [replace(one, adapters=loaded) for one in before[:2]] + before[2:]
    site.prefer("eng-3")
    try:
        for number in range(10):
            said = await ask(await site.stage.open(), "ft:a", prompt=f"{number}" * 100)
            assert said["by"] in ("eng-1", "eng-2")
        assert "unfit" not in site.stage.counted()
    finally:
        site.stage.replicas = before


async def test_it_counts_what_is_open_until_it_ends_or_is_cut(site: Site) -> None:
    site.prefer("eng-2")
    await site.settles("eng-2")
    site.stage.goes_on.clear()
    await until(lambda: site.picker.gauge(RUNNING) == 0)
    connections = [await site.stage.open() for _ in range(3)]
    for connection in connections:
        await connection.exchange(said(stream=True))
        assert await connection.readany() == b'{"by":'
    await until(lambda: site.picker.gauge(RUNNING) == 3)
    connections[0].close()
    await until(lambda: site.picker.gauge(RUNNING) == 2)
    site.stage.goes_on.set()
    for connection in connections[1:]:
        assert (await connection.read()).endswith(b"}")
    await until(lambda: site.picker.gauge(RUNNING) == 0)
    assert site.picker.gauge("inference_objective_request_error_total") == 0


async def test_a_long_body_and_one_that_it_does_not_understand_are_answered(site: Site) -> None:
    site.prefer("eng-3")
    await site.settles("eng-3")
    site.stage.counted()
    long = "one word after another, " * 40_000
    assert await ask(await site.stage.open(), prompt=long) == {"by": "eng-3"}
    assert await ask(await site.stage.open(), prompt={"not": "a prompt"}) == {"by": "eng-1"}
    assert site.stage.counted() == {"moved": 1, "refused": 1}


async def test_a_pod_that_is_not_ready_is_not_named(site: Site) -> None:
    site.prefer("eng-2")
    await site.settles("eng-2")
    site.picker.mark("eng-2", HOSTS["eng-2"], ready=False)
    try:
        await until(lambda: site.picker.gauge(READY) == 2)
        said = await ask(await site.stage.open())
        assert said["by"] in ("eng-1", "eng-3")
    finally:
        site.picker.mark("eng-2", HOSTS["eng-2"], ready=True)


async def test_without_it_requests_go_where_the_gateway_sends_them(site: Site) -> None:
    site.prefer("eng-2")
    await site.settles("eng-2")
    site.stage.counted()
    connection = await site.stage.open()
    site.picker.kill()
    assert await ask(connection) == {"by": "eng-1"}
    assert site.stage.counted() == {"failed": 1}
    await site.picker.start("my-base")
    await site.settles("eng-2")
