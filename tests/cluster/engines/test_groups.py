"""Engines on several nodes: groups of pods of a real LeaderWorkerSet under a real Kueue.

In the pods stands a stub for vLLM (`tests/support/agents/group_stage`): its CPU build cannot divide
layers over nodes, as is usual on GPUs, and divided by tensors it takes minutes to answer. Order,
weights, doors and quota are real; vLLM's own parser reads its flags in
`tests/integration/engine_kinds/test_vllm_flags.py`.
"""

import json
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import psutil
import pytest
import pytest_asyncio
from tests.cluster.cluster import TestCluster
from tests.cluster.fixtures import Clusters
from tests.cluster.provision.site import REPOSITORY
from tests.cluster.stages.driven import MIB
from tests.cluster.stages.engines import EngineStage, engine_stage, from_outside
from tests.support.environments import postgres
from tests.support.waiting import until

from windlass.api.clusters.v1 import clusters_pb2 as pb
from windlass_agent.kube.resources import LEADERWORKERSETS, WORKLOADS
from windlass_agent.namespaces.network import network_policies

pytestmark = [pytest.mark.timeout(900), pytest.mark.asyncio(loop_scope="module")]
STAGE = REPOSITORY / "tests/support/agents/group_stage"
DELETED = pb.DESIRED_STATE_DELETED
# Of one group of two pods, each with 256 MiB for its keeper; not of two groups.
ENGINE_BYTES, QUOTA = 128 * MIB, "1Gi"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stage(
    clusters: Clusters,
    postgres_url: str,
    schema_template: str,
    tmp_path_factory: pytest.TempPathFactory,
) -> AsyncIterator[EngineStage]:
    folder: Path = tmp_path_factory.mktemp("groups")
    with (
        clusters.open("east") as cluster,
        postgres.fresh_database(postgres_url, template=schema_template) as url,
    ):
        async with engine_stage(cluster, url, folder, memory=QUOTA) as made:
            space = made.world.namespace
            # Its pods reach each other, and the agent and the store, which are on this machine.
            ports = [made.world.port, urlsplit(made.store[1]).port]
            outside = [{"cidr": f"{cluster.host}/32", "ports": ports}]
            policies = network_policies(space, made.world.settings(egress=outside))
            cluster.apply(*policies, from_outside(space, cluster.host))
            yield made


def settings(stage: EngineStage, **changes: Any) -> dict[str, Any]:
    """The section of engines, with the stub in the place of vLLM's image."""
    found = stage.settings(**{"memory_bytes": ENGINE_BYTES} | changes)
    engines = found["engines"]
    engines["images"]["vllm"] = engines["images"]["builtin"]
    (engine,) = engines["overlay"]["spec"]["containers"]
    engine["env"] = [
        one | ({"value": f"{STAGE}:{one['value']}"} if one["name"] == "PYTHONPATH" else {})
        for one in engine["env"]
    ]
    return found


async def put(stage: EngineStage, identifier: str, **options: Any) -> None:
    await stage.put(identifier, **{"kind": "vllm", "nodes": 2} | options)


async def leader(stage: EngineStage) -> dict[str, Any]:
    """The first pod of the only group that runs."""
    (found,) = [
        pod
        for pod in await stage.pods()
        if pod["metadata"]["labels"]["leaderworkerset.sigs.k8s.io/worker-index"] == "0"
        and "nodeName" in pod["spec"]
    ]
    return found


async def streamed(
    stage: EngineStage, tokens: int, *, meanwhile: Callable[[], Awaitable[None]]
) -> list[str]:
    """The chunks of a stream, during which something happens."""
    client, named = stage.client("eng-pair")
    body = {"model": "toy", "prompt": "the", "stream": True, "max_tokens": tokens}
    async with (
        client,
        client.stream("POST", "/v1/completions", json=body, extensions=named) as answer,
    ):
        lines = answer.aiter_lines()
        await anext(lines)
        await meanwhile()
        return [line async for line in lines if line.startswith("data: ")]


async def test_two_pods_answer_as_one_and_the_next_group_waits_for_quota(
    stage: EngineStage,
) -> None:
    async with stage.world.agent(**settings(stage)):
        await put(stage, "eng-pair")
        status = await stage.serves("eng-pair")
        assert not status.capabilities.adapters
        assert (await stage.say("eng-pair", "toy")).json()["usage"]["completion_tokens"] == 8
        assert len(await stage.pods()) == 2
        await put(stage, "eng-next")
        await stage.world.reach("eng-next", pb.PHASE_PENDING, reason="Queued")

        def waits() -> bool:
            status = stage.world.statuses["eng-next"]
            return "insufficient unused quota" in status.message and status.queue_position == 1

        await until(waits)
        groups = await stage.world.kube.list(LEADERWORKERSETS.path(stage.world.namespace))
        admissions = await stage.world.kube.list(WORKLOADS.path(stage.world.namespace))
        assert len(groups) == len(admissions) == 2, "each is admitted by itself, and as a whole"
        gated = [pod for pod in await stage.pods() if pod["spec"].get("schedulingGates")]
        assert len(gated) == len(await stage.pods()) - 2
        capacity = stage.world.executor and stage.world.executor.capacity()
        assert capacity
        assert list(capacity.grouped_engines) == ["vllm"]
        await put(stage, "eng-next", generation=2, desired=DELETED)
        await stage.world.reach("eng-next", pb.PHASE_STOPPED, generation=2)
    before = await leader(stage)
    async with stage.world.agent(**settings(stage)):
        await put(stage, "eng-pair", generation=2)
        await stage.serves("eng-pair", generation=2)
        same = await leader(stage)
        assert same["metadata"]["uid"] == before["metadata"]["uid"], "taken over"


async def test_a_group_that_loses_a_pod_cuts_what_is_open_and_begins_anew(
    stage: EngineStage,
) -> None:
    async with stage.world.agent(**settings(stage)):
        await put(stage, "eng-pair", generation=3)
        await stage.serves("eng-pair", generation=3)
        before = await leader(stage)
        with pytest.raises(httpx.RemoteProtocolError):
            await streamed(stage, 100_000, meanwhile=partial(kill_a_member, stage.world.cluster))
        await stage.world.reach("eng-pair", pb.PHASE_PENDING, generation=3)
        await stage.serves("eng-pair", generation=3)
        after = await leader(stage)
        assert after["metadata"]["uid"] != before["metadata"]["uid"]
        assert (await stage.say("eng-pair", "toy")).status_code == 200


async def kill_a_member(cluster: TestCluster) -> None:
    """Ends the engine of the second pod by kill -9."""
    cluster.own()
    for process in psutil.process_iter(["cmdline"]):
        command = process.info["cmdline"] or ()
        # And none of vLLM itself, which is in an environment of its own.
        if {sys.executable, "vllm.entrypoints.cli.main", "--node-rank=1"} <= set(command):
            process.kill()


async def test_a_group_that_kueue_evicts_waits_as_a_whole_and_comes_back(
    stage: EngineStage,
) -> None:
    async with stage.world.agent(**settings(stage)):
        await put(stage, "eng-pair", generation=3)
        await stage.serves("eng-pair", generation=3)
        stop(stage, "HoldAndDrain")
        await stage.world.reach("eng-pair", pb.PHASE_PENDING, generation=3, reason="Queued")
        await until(stage.pods, holds=lambda pods: len(pods) == 2 and not any(map(placed, pods)))
        stop(stage, "None")
        await stage.serves("eng-pair", generation=3)


def placed(pod: dict[str, Any]) -> bool:
    return "nodeName" in pod["spec"]


def stop(stage: EngineStage, policy: str) -> None:
    """Has the queue's ClusterQueue evict all that it admitted, or admit again."""
    world = stage.world
    patch = json.dumps({"spec": {"stopPolicy": policy}})
    queue = f"clusterqueue/{world.namespace}-{world.queue}"
    world.cluster.kubectl("patch", queue, "--type=merge", "-p", patch)


async def test_a_group_that_should_end_answers_first_and_leaves_nothing(
    stage: EngineStage,
) -> None:
    async with stage.world.agent(**settings(stage)):
        await put(stage, "eng-pair", generation=4)
        await stage.serves("eng-pair", generation=4)
        rest = await streamed(
            stage, 200, meanwhile=partial(put, stage, "eng-pair", generation=5, desired=DELETED)
        )
        assert rest[-1] == "data: [DONE]", "each token took both pods"
        assert len([json.loads(line[6:]) for line in rest[:-1]]) > 100
        await stage.gone()
        await stage.world.reach("eng-pair", pb.PHASE_STOPPED, generation=5)


async def test_a_group_that_no_quota_can_hold_says_the_numbers(stage: EngineStage) -> None:
    # One of its pods would fit.
    async with stage.world.agent(**settings(stage, memory_bytes=512 * MIB)):
        await put(stage, "eng-large")
        status = await stage.world.reach("eng-large", pb.PHASE_FAILED, reason="ExceedsQuota")
        assert "(768Mi) > maximum capacity (1Gi)" in status.message
        await stage.gone()
        await put(stage, "eng-large", generation=2, desired=DELETED)


@pytest.mark.parametrize("nodes", [1, 2])
async def test_one_that_finds_too_little_memory_says_what_it_had_and_nothing_of_its_log(
    stage: EngineStage, nodes: int
) -> None:
    found = settings(stage)
    (engine,) = found["engines"]["overlay"]["spec"]["containers"]
    engine["env"].append({"name": "LAST_WORDS", "value": "somebody's prompt\nMemoryError"})
    async with stage.world.agent(**found):
        await put(stage, "eng-short", nodes=nodes, generation=2 * nodes)
        status = await stage.world.reach(
            "eng-short", pb.PHASE_FAILED, reason="OutOfMemory", generation=2 * nodes
        )
        assert status.message.startswith(
            "The engine ended with code 1: it found too little memory. "
            "It had 128 MiB of its machine's memory for weights of "
        )
        assert "prompt" not in status.message
        await stage.gone()
        await put(stage, "eng-short", generation=2 * nodes + 1, desired=DELETED)
