"""Engines as pods of a real cluster: admitted by quota, kept by their keepers, drained."""

import json
from collections.abc import AsyncIterator
from pathlib import Path

import psutil
import pytest
import pytest_asyncio
from tests.cluster.cluster import TestCluster
from tests.cluster.fixtures import Clusters
from tests.cluster.stages.driven import MIB
from tests.cluster.stages.engines import EngineStage, engine_stage
from tests.support.environments import postgres
from tests.support.waiting import until

from windlass.api.clusters.v1 import clusters_pb2 as pb

pytestmark = [
    pytest.mark.torch,
    pytest.mark.timeout(1200),
    pytest.mark.asyncio(loop_scope="module"),
]
DELETED = pb.DESIRED_STATE_DELETED


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stage(
    clusters: Clusters,
    postgres_url: str,
    schema_template: str,
    tmp_path_factory: pytest.TempPathFactory,
) -> AsyncIterator[EngineStage]:
    folder: Path = tmp_path_factory.mktemp("engines")
    with (
        clusters.open("east") as cluster,
        postgres.fresh_database(postgres_url, template=schema_template) as url,
    ):
        async with engine_stage(cluster, url, folder) as made:
            yield made


async def test_it_serves_and_the_next_one_waits_for_quota(stage: EngineStage) -> None:
    async with stage.world.agent(**stage.settings()):
        await stage.put("eng-one", "mv-a")
        status = await stage.serves("eng-one", "mv-a")
        assert status.endpoint.startswith("tunnel://"), "no address of a pod is told"
        assert status.capabilities.context_length > 0
        base, adapter = await stage.say("eng-one", "toy"), await stage.say("eng-one", "ft:mv-a")
        assert base.json()["usage"]["completion_tokens"] == 8
        assert base.json()["choices"][0]["text"] != adapter.json()["choices"][0]["text"]
        (replica,) = stage.executor.alike("eng-one")
        assert (replica.model, replica.adapters) == ("toy", {"ft:mv-a": "mv-a"})
        await stage.put("eng-two")
        await stage.world.reach("eng-two", pb.PHASE_PENDING, reason="Queued")

        def waits() -> bool:
            status = stage.world.statuses["eng-two"]
            return "insufficient unused quota" in status.message and status.queue_position == 1

        await until(waits)
        (_, other) = sorted(await stage.pods(), key=lambda pod: "nodeName" not in pod["spec"])
        assert other["spec"]["schedulingGates"], "Kueue holds it"
        await stage.put("eng-two", generation=2, desired=DELETED)
        await stage.world.reach("eng-two", pb.PHASE_STOPPED, generation=2)
    # The agent is gone, and what serves goes on.
    (pod,) = await stage.pods()
    assert pod["metadata"]["labels"]["windlass.dev/model"] == "toy"
    async with stage.world.agent(**stage.settings()):
        await stage.put("eng-one", "mv-a", "mv-b", generation=2)
        await stage.serves("eng-one", "mv-a", "mv-b", generation=2)
        (same,) = await stage.pods()
        assert same["metadata"]["uid"] == pod["metadata"]["uid"]


async def test_a_pod_that_is_deleted_comes_back_and_one_that_ends_is_drained(
    stage: EngineStage,
) -> None:
    async with stage.world.agent(**stage.settings()):
        await stage.put("eng-one", "mv-a", generation=3)
        await stage.serves("eng-one", "mv-a", generation=3)
        kill_engines(stage.world.cluster)
        await stage.world.reach("eng-one", pb.PHASE_STARTING, generation=3)
        await stage.serves("eng-one", "mv-a", generation=3)
        client, named = stage.client("eng-one")
        body = {
            "model": "toy", "prompt": "the", "max_tokens": 100, "stream": True, "ignore_eos": True,
        }  # fmt: skip
        async with (
            client,
            client.stream("POST", "/v1/completions", json=body, extensions=named) as answer,
        ):
            lines = answer.aiter_lines()
            await anext(lines)
            await stage.put("eng-one", generation=4, desired=DELETED)
            rest = [line async for line in lines if line.startswith("data: ")]
        assert rest[-1] == "data: [DONE]"
        assert len([json.loads(line[6:]) for line in rest[:-1]]) > 50
        await stage.gone()
        await stage.world.reach("eng-one", pb.PHASE_STOPPED, generation=4)


def kill_engines(cluster: TestCluster) -> None:
    """Ends the engines of the cluster by kill -9; none can be killed from within its container."""
    cluster.own()
    for process in psutil.process_iter(["cmdline"]):
        if "--model=/weights/models/mv-toy" in (process.info["cmdline"] or ()):
            process.kill()


async def test_what_no_quota_can_hold_says_the_numbers(stage: EngineStage) -> None:
    async with stage.world.agent(**stage.settings(memory_bytes=8 * 1024 * MIB)):
        await stage.put("eng-large")
        status = await stage.world.reach("eng-large", pb.PHASE_FAILED, reason="ExceedsQuota")
        assert "> maximum capacity (" in status.message
        await stage.gone()
        await stage.put("eng-large", generation=2, desired=DELETED)


async def test_what_cannot_run_says_why_and_leaves_nothing(stage: EngineStage) -> None:
    changes = stage.settings()
    changes["engines"]["images"]["vllm"] = {"image": "localhost/none:0", "python": "python3"}
    async with stage.world.agent(**changes):
        await stage.put("eng-image", kind="vllm")
        status = await stage.world.reach("eng-image", pb.PHASE_FAILED, reason="ImagePullFailed")
        assert "Its image cannot be pulled" in status.message
        await stage.gone()
        await stage.put("eng-kind", kind="llamacpp")
        status = await stage.world.reach("eng-kind", pb.PHASE_FAILED, reason="NoImage")
        assert "'llamacpp'" in status.message
        bad = stage.workload("eng-broken")
        for file in bad.engine.model_files:
            file.url = file.url.replace("mv-toy", "mv-none")
        await stage.world.plane.internal.PutWorkload(pb.PutWorkloadRequest(workload=bad))
        status = await stage.world.reach(
            "eng-broken", pb.PHASE_FAILED, reason="DownloadFailed", seconds=300
        )
        assert "HTTP 404" in status.message
        await stage.gone()
        # Wanted again, with files that are there.
        await stage.put("eng-broken", generation=2)
        await stage.serves("eng-broken", generation=2)
        await stage.put("eng-broken", generation=3, desired=DELETED)
        await stage.gone()


async def test_a_claim_that_no_storage_binds_is_told(stage: EngineStage) -> None:
    weights = {"claim": "weights", "bytes": 256 * MIB, "storage_class": "not-there"}
    async with stage.world.agent(**stage.settings(weights=weights)):
        await stage.put("eng-claim")
        status = await stage.world.reach("eng-claim", pb.PHASE_FAILED, reason="VolumeMissing")
        assert "unbound immediate PersistentVolumeClaims" in status.message
        await stage.gone()
        await stage.put("eng-claim", generation=2, desired=DELETED)


async def test_a_device_class_without_its_driver_is_named(stage: EngineStage) -> None:
    """A claim of a class that nobody offers devices of."""
    claimed = {"device_class": "nobody.example.com", "queues": [stage.world.queue]}
    async with stage.world.agent(accelerators=[claimed], **stage.settings(gpus=1)):
        await stage.put("eng-claimed")
        status = await stage.world.reach("eng-claimed", pb.PHASE_FAILED, reason="Unschedulable")
        assert "nobody.example.com" in status.message
        await stage.gone()
        await stage.put("eng-claimed", generation=2, desired=DELETED)
