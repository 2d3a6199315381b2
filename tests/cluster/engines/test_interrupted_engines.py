"""Engines whose pods a real cluster takes away under an open stream: that comes whole."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from tests.cluster.fixtures import Clusters
from tests.cluster.objects import pods
from tests.cluster.stages.engines import EngineStage, engine_stage
from tests.support.environments import postgres
from tests.support.waiting import until

from windlass.api.clusters.v1 import clusters_pb2 as pb

# Each starts an engine anew, which takes most of a minute.
pytestmark = [
    pytest.mark.torch,
    pytest.mark.long,
    pytest.mark.timeout(1200),
    pytest.mark.asyncio(loop_scope="module"),
]
ENGINE, TOKENS = "eng-taken", 400
PREEMPTS = {"preemption": {"withinClusterQueue": "LowerPriority"}}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stage(
    clusters: Clusters,
    postgres_url: str,
    schema_template: str,
    tmp_path_factory: pytest.TempPathFactory,
) -> AsyncIterator[EngineStage]:
    """An engine that serves, with room for no other."""
    folder: Path = tmp_path_factory.mktemp("engines")
    with (
        clusters.open("east") as cluster,
        postgres.fresh_database(postgres_url, template=schema_template) as url,
    ):
        async with (
            engine_stage(cluster, url, folder, spec=PREEMPTS) as made,
            made.world.agent(**made.settings()),
        ):
            await made.put(ENGINE)
            await made.serves(ENGINE)
            yield made


async def streamed(stage: EngineStage, meanwhile: Callable[[], Awaitable[object]]) -> None:
    """Asserts that a stream comes to its end, though something happens once it has begun."""
    client, named = stage.client(ENGINE)
    body: dict[str, Any] = {
        "model": "toy", "prompt": "the", "max_tokens": TOKENS, "stream": True, "ignore_eos": True,
    }  # fmt: skip
    async with (
        client,
        client.stream("POST", "/v1/completions", json=body, extensions=named) as answer,
    ):
        lines = answer.aiter_lines()
        await anext(lines)
        await meanwhile()
        rest = [line async for line in lines if line.startswith("data: ")]
    assert rest[-1] == "data: [DONE]"
    texts = [json.loads(line[6:]) for line in rest[:-1]]
    assert sum(len(one["choices"]) for one in texts) > TOKENS // 2


async def begins_to_end(stage: EngineStage, uid: str) -> None:
    """Until a pod is told to end."""

    async def told() -> bool:
        found = {one["metadata"]["uid"]: one["metadata"] for one in await stage.pods()}
        return uid not in found or "deletionTimestamp" in found[uid]

    await until(told, 120)


async def test_a_node_is_drained_under_a_stream(stage: EngineStage) -> None:
    (pod,) = await stage.pods()
    name, uid, space = pod["metadata"]["name"], pod["metadata"]["uid"], stage.world.namespace
    metadata = {"name": name, "namespace": space}
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": metadata}
    path = f"/api/v1/namespaces/{space}/pods/{name}/eviction"

    async def evict() -> None:
        words, given = ("create", "--raw", path, "-f-"), json.dumps(eviction)
        await asyncio.to_thread(stage.world.cluster.kubectl, *words, input=given)
        await begins_to_end(stage, uid)

    await streamed(stage, evict)
    await stage.world.reach(ENGINE, pb.PHASE_STARTING, seconds=300)
    await stage.serves(ENGINE)
    (other,) = await stage.pods()
    assert other["metadata"]["uid"] != uid


async def test_kueue_preempts_it_under_a_stream_and_it_waits(stage: EngineStage) -> None:
    cluster, space = stage.world.cluster, stage.world.namespace
    (pod,) = await stage.pods()
    urgent = f"{space}-urgent"
    room = {"resources": {"requests": {"cpu": "50m", "memory": "1Gi"}}}
    job = pods.job(space, "urgent", pods.spec(cluster.image, ["sleep", "3600"], **room),
                   queue=stage.world.queue)  # fmt: skip
    job["metadata"]["labels"]["kueue.x-k8s.io/priority-class"] = urgent
    priority = {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "WorkloadPriorityClass",
        "metadata": {"name": urgent},
        "value": 9,
    }

    async def preempt() -> None:
        await asyncio.to_thread(cluster.apply, priority, job)
        cluster.remove_after("workloadpriorityclass", urgent)
        await begins_to_end(stage, pod["metadata"]["uid"])

    await streamed(stage, preempt)
    status = await stage.world.reach(ENGINE, pb.PHASE_PENDING, reason="Queued", seconds=300)
    assert not status.endpoint, "no request is sent there any more"
    await asyncio.to_thread(cluster.kubectl, "delete", "job", "urgent", "-n", space)
    await stage.serves(ENGINE)
