"""llama.cpp and SGLang in pods of a real cluster, in containers with nothing of ours.

llama.cpp is its real server; of SGLang the wheel without a model (`environments/sglang`).
"""

import shutil
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest
import pytest_asyncio
from tests.cluster.fixtures import Clusters
from tests.cluster.stages.driven import MIB
from tests.cluster.stages.engines import EngineStage, engine_section, engine_stage
from tests.support.environments import made_once, postgres
from tests.support.environments.llama_server import llama_server
from tests.support.environments.sglang.env import sglang_python
from tests.support.waiting import until

from windlass.api.clusters.v1 import clusters_pb2 as pb
from windlass.engine_arguments import EngineArguments, to_message

pytestmark = [
    pytest.mark.torch,
    pytest.mark.long,
    pytest.mark.timeout(1800),
    pytest.mark.asyncio(loop_scope="module"),
]
DELETED = pb.DESIRED_STATE_DELETED
ARGUMENTS = {
    "llamacpp": EngineArguments(context_length=256, max_concurrency=1, draft_model="small"),
    "sglang": EngineArguments(context_length=256, max_concurrency=1),
}


@dataclass(frozen=True)
class Completed:
    """A kind, and its program in a folder that pods see."""

    kind: str
    program: Path

    def running(self) -> list[psutil.Process]:
        """The processes of the program, whoever's pod they are in."""
        found = []
        for process in psutil.process_iter(["cmdline"]):
            words = process.info["cmdline"] or [""]
            if words[0] == str(self.program):
                found.append(process)
        return found


@pytest.fixture(scope="module", params=sorted(ARGUMENTS))
def completed(request: pytest.FixtureRequest) -> Completed:
    kind = str(request.param)
    if kind == "sglang":
        return Completed(kind, sglang_python())
    made_once.BUILD.mkdir(exist_ok=True)
    return Completed(kind, Path(shutil.copy2(llama_server(), made_once.BUILD / "llama-server")))


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stage(
    clusters: Clusters,
    postgres_url: str,
    schema_template: str,
    tmp_path_factory: pytest.TempPathFactory,
) -> AsyncIterator[EngineStage]:
    folder: Path = tmp_path_factory.mktemp("completed")
    with (
        clusters.open("east") as cluster,
        postgres.fresh_database(postgres_url, template=schema_template) as url,
    ):
        async with engine_stage(cluster, url, folder, memory="10Gi") as made:
            yield made


def settings(stage: EngineStage, completed: Completed) -> dict[str, Any]:
    """Those of a cluster whose image of the kind has a shell and its own program, no more."""
    document = engine_section(stage.world.document)
    (engine,) = document["overlay"]["spec"]["containers"]
    # What was built here needs this machine's libraries.
    document["overlay"]["spec"]["initContainers"].append({**engine, "name": "server", "env": []})
    ours = document["images"].pop("builtin")
    document["images"][completed.kind] = {
        "image": ours["image"],
        "completer": ours["image"],
        "python": ours["python"],
        "program": str(completed.program),
    }
    return {"engines": document | {"memory_bytes": 1024 * MIB}}


async def test_upstream_s_program_answers_with_adapters_and_comes_back(
    stage: EngineStage, completed: Completed
) -> None:
    name = f"eng-{completed.kind}"
    arguments = to_message(ARGUMENTS[completed.kind])
    wish: dict[str, Any] = {"kind": completed.kind, "arguments": arguments}
    async with stage.world.agent(**settings(stage, completed)):
        await stage.put(name, "mv-a", **wish)
        status = await stage.serves(name, "mv-a")
        assert status.capabilities.context_length == 256
        base, adapter = await stage.say(name, "toy"), await stage.say(name, "ft:mv-a")
        assert base.json()["usage"]["completion_tokens"] == 8
        assert base.json()["choices"][0]["text"] != adapter.json()["choices"][0]["text"]
        steering = await stage.say(name, "toy", no_such_field=0)
        assert steering.status_code == 400, "its completer reads what passes"
        for process in completed.running():
            process.kill()
        await stage.world.reach(name, pb.PHASE_STARTING)
        await stage.serves(name, "mv-a")
        again = await stage.say(name, "ft:mv-a")
        assert again.json()["choices"][0]["text"] == adapter.json()["choices"][0]["text"]
        await stage.put(name, generation=2, desired=DELETED, **wish)
        await stage.gone()
    await until(lambda: not completed.running())


async def test_a_cluster_without_its_image_says_so(
    stage: EngineStage, completed: Completed
) -> None:
    name = f"none-{completed.kind}"
    async with stage.world.agent(**stage.settings()):
        await stage.put(name, kind=completed.kind)
        status = await stage.world.reach(name, pb.PHASE_FAILED, reason="NoImage")
        assert f"no image of the engine '{completed.kind}'" in status.message
        await stage.put(name, generation=2, desired=DELETED, kind=completed.kind)
