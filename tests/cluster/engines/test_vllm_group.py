"""vLLM itself in a group of two pods, divided by tensors: its CPU build divides no layers."""

from pathlib import Path
from typing import Any

import pytest
from tests.cluster.fixtures import Clusters
from tests.cluster.stages.driven import MIB
from tests.cluster.stages.engines import EngineStage, engine_stage
from tests.support.environments import postgres
from tests.support.environments.vllm_env import turn, vllm_python

from windlass.api.clusters.v1 import clusters_pb2 as pb

pytestmark = [pytest.mark.torch, pytest.mark.long, pytest.mark.timeout(1500)]
# Three processes of vLLM's in the first pod, two in the other.
ENGINE_BYTES = 4096 * MIB
ARGUMENTS = pb.EngineArguments(
    tensor_parallel=2, context_length=128, max_concurrency=2, dtype="float32", eager=True,
    kv_cache_bytes=64 * MIB,
)  # fmt: skip


def settings(stage: EngineStage) -> dict[str, Any]:
    """The section of engines, with this machine's vLLM in the place of an image."""
    found = stage.settings(memory_bytes=ENGINE_BYTES, shm_bytes=1024 * MIB)
    engines = found["engines"]
    engines["images"]["vllm"] = engines["keeper"] | {"python": str(vllm_python())}
    (engine,) = engines["overlay"]["spec"]["containers"]
    threads = {"OMP_NUM_THREADS": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind"}
    engine["env"] = [
        # Its environment has all that it needs.
        *(one for one in engine["env"] if one["name"] != "PYTHONPATH"),
        *({"name": name, "value": value} for name, value in threads.items()),
    ]
    return found


async def test_two_pods_of_vllm_answer_as_one(
    clusters: Clusters, postgres_url: str, schema_template: str, tmp_path: Path
) -> None:
    with (
        turn(),
        clusters.open("east") as cluster,
        postgres.fresh_database(postgres_url, template=schema_template) as url,
    ):
        async with (
            engine_stage(cluster, url, tmp_path, hidden=128, memory="10Gi") as stage,
            stage.world.agent(**settings(stage)),
        ):
            await stage.put("eng-vllm", kind="vllm", nodes=2, arguments=ARGUMENTS)
            status = await stage.serves("eng-vllm")
            assert status.capabilities.context_length == 128
            answer = (await stage.say("eng-vllm", "toy", min_tokens=8)).json()
            assert answer["usage"]["completion_tokens"] == 8
