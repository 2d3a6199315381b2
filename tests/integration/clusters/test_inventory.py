"""Inventory reports of clusters: in order, within a session, complete or not at all."""

import asyncio
from typing import Any

import grpc
import pytest
from tests.support.agents.cluster_agent import AgentClient, refused
from tests.support.services.clusters import ControlPlane

from windlass.api.clusters.v1 import clusters_pb2 as pb
from windlass.api.clusters.v1 import clusters_pb2_grpc as rpc
from windlass.clusters.storage.inventory import MAX_ITEM_BYTES
from windlass.core.errors import from_rpc

GAP = (grpc.StatusCode.FAILED_PRECONDITION, "inventory_gap")


def node(name: str, *, gpus: int = 8, running: int = 0, **fields: Any) -> pb.InventoryItem:
    state = pb.NodeState(
        name=name, ready=True, schedulable=True, cpu_millis=64_000, memory_bytes=2**38,
        accelerators=[
            pb.Accelerator(
                resource="nvidia.com/gpu", product="H100", capacity=gpus, allocatable=gpus,
                running=running,
            )
        ],
    )  # fmt: skip
    state.MergeFrom(pb.NodeState(**fields))
    return pb.InventoryItem(key=f"node/{name}", node=state)


async def seen(
    plane: ControlPlane, operators: rpc.ClustersServiceAsyncStub, cluster_id: str
) -> dict[str, Any]:
    request = pb.GetInventoryRequest(cluster_id=cluster_id)
    found = await operators.GetInventory(request, **plane.operator)
    return {item.key: item for item in found.items}


async def test_a_snapshot_then_changes(
    plane: ControlPlane,
    operators: rpc.ClustersServiceAsyncStub,
    agent: AgentClient,
    enrolled: pb.EnrollResponse,
) -> None:
    await agent.watch()
    await agent.observe(node("a"), node("b", running=3), snapshot=True)
    await agent.observe(node("a", running=8), node("c"), gone=["node/b", "node/never"])
    there = await seen(plane, operators, enrolled.cluster_id)
    assert list(there) == ["node/a", "node/c"]
    assert there["node/a"].node.accelerators[0].running == 8
    await agent.observe(node("d"), snapshot=True)
    assert list(await seen(plane, operators, enrolled.cluster_id)) == ["node/d"]


async def test_a_report_that_follows_none_is_refused_whole(
    plane: ControlPlane,
    operators: rpc.ClustersServiceAsyncStub,
    agent: AgentClient,
    enrolled: pb.EnrollResponse,
) -> None:
    await agent.watch()
    assert await refused(agent.observe(node("a"), sequence=1)) == GAP
    await agent.observe(node("a"), snapshot=True, sequence=5)
    for sequence in (5, 7, 0, 2**62):
        assert await refused(agent.observe(node("b"), sequence=sequence)) == GAP
    await agent.observe(node("c"), sequence=6)
    assert list(await seen(plane, operators, enrolled.cluster_id)) == ["node/a", "node/c"]


async def test_of_two_reports_with_one_number_one_counts(agent: AgentClient) -> None:
    await agent.watch()
    await agent.observe(snapshot=True, sequence=1)
    calls = (agent.observe(node(f"n{number}"), sequence=2) for number in range(5))
    answers = await asyncio.gather(*calls, return_exceptions=True)
    assert sum(answer is None for answer in answers) == 1


async def test_a_fenced_session_reports_nothing(
    plane: ControlPlane,
    operators: rpc.ClustersServiceAsyncStub,
    channel: grpc.aio.Channel,
    agent: AgentClient,
    enrolled: pb.EnrollResponse,
) -> None:
    await agent.watch()
    await agent.observe(node("a"), snapshot=True)
    second = AgentClient(channel, enrolled.credential, "session-2", executor="kubernetes")
    await second.watch()
    fenced = (grpc.StatusCode.FAILED_PRECONDITION, "session_superseded")
    assert await refused(agent.observe(node("b"))) == fenced
    # What was reported stays; the new session begins with a snapshot of its own.
    assert await refused(second.observe(node("b"), sequence=2)) == GAP
    await second.observe(node("b"), snapshot=True)
    assert list(await seen(plane, operators, enrolled.cluster_id)) == ["node/b"]


async def test_bounds(agent: AgentClient) -> None:
    await agent.watch()
    await agent.observe(snapshot=True)
    wrong = [
        pb.InventoryItem(key="node/a"),
        pb.InventoryItem(key="", node=pb.NodeState(name="a")),
        pb.InventoryItem(key="node/\x00", node=pb.NodeState(name="a")),
        pb.InventoryItem(key="x" * 401, node=pb.NodeState(name="a")),
        node("a", labels={f"label-{n}": "v" * 60 for n in range(1000)}),
    ]
    for item in wrong:
        code, _ = await refused(agent.observe(item, sequence=2))
        assert code is grpc.StatusCode.INVALID_ARGUMENT
    for report in (
        {"gone": ["\x00"]},
        {"sequence": -1},
        {"status": pb.SpecStatus(assignment_errors={"p": "x" * 2**20})},
        {"status": pb.SpecStatus(assignment_errors={"\x00": "x"})},
    ):
        code, _ = await refused(agent.observe(**({"sequence": 2} | report)))
        assert code is grpc.StatusCode.INVALID_ARGUMENT, report


async def test_an_item_is_no_larger_than_it_may_be(agent: AgentClient) -> None:
    def item(size: int) -> pb.InventoryItem:
        return pb.InventoryItem(key="missing/x", missing="x" * size)

    await agent.watch()
    filler = item(MAX_ITEM_BYTES).ByteSize() - MAX_ITEM_BYTES
    await agent.observe(item(MAX_ITEM_BYTES - filler), snapshot=True)
    with pytest.raises(grpc.aio.AioRpcError) as refusal:
        await agent.observe(item(MAX_ITEM_BYTES - filler + 1))
    error = from_rpc(refusal.value)
    assert (error.param, error.reason) == ("items", "inventory_item_too_large")
    assert "missing/x" in error.message


async def test_what_clusters_have_is_summed_up(
    plane: ControlPlane,
    operators: rpc.ClustersServiceAsyncStub,
    agent: AgentClient,
    enrolled: pb.EnrollResponse,
) -> None:
    async def capacity() -> pb.Capacity:
        request = pb.GetClusterRequest(cluster_id=enrolled.cluster_id)
        return (await operators.GetCluster(request, **plane.operator)).capacity

    await agent.watch()
    shared = pb.Accelerator(resource="gpu.example.com", allocatable=4, is_device_class=True)
    device_class = pb.Accelerator(
        resource="gpu.example.com", allocatable=4, running=1, pending=9, is_device_class=True
    )
    await agent.observe(
        node("a", running=3, accelerators=[shared]),
        node("b", ready=True),
        pb.InventoryItem(key="node/away", node=pb.NodeState(name="away", cpu_millis=1000)),
        pb.InventoryItem(key="device_class/gpu.example.com", device_class=device_class),
        pb.InventoryItem(key="pending/nvidia.com/gpu", device_class=pb.Accelerator(pending=100)),
        snapshot=True,
    )
    found = await capacity()
    assert (found.gpus, found.used_gpus) == (20, 3 + 4)
    assert (found.cpus, found.memory_bytes) == (128, 2 * 2**38)
    await agent.observe(gone=["node/b"])
    assert (await capacity()).gpus == 12


async def test_no_number_of_an_agents_is_too_large(plane: ControlPlane, agent: AgentClient) -> None:
    await agent.watch()
    await agent.heartbeat()
    most = 2**63 - 1
    queue = pb.ClusterQueue(name="q", cohort="c")
    for nominal, used in ((most, 0), (-most, most), (most, -most)):
        queue.quotas.add(flavor="f", resource=f"x/{nominal + used}", nominal=nominal, used=used)
    items = [node(f"n{number}", gpus=most, running=most, cpu_millis=most) for number in range(300)]
    for name in ("q1", "q2"):
        queue.name = name
        items.append(pb.InventoryItem(key=f"cluster_queue/{name}", cluster_queue=queue))
    await agent.observe(*items, snapshot=True)
    answer = await plane.capacity()
    assert answer.clusters[0].capacity.gpus == 2**31 - 1
    assert len(answer.queues[0].queues) == 2


async def test_what_clusters_have_is_the_administrators_to_see(
    plane: ControlPlane, operators: rpc.ClustersServiceAsyncStub, enrolled: pb.EnrollResponse
) -> None:
    request = pb.GetInventoryRequest(cluster_id=enrolled.cluster_id)
    for permissions in ((), ("read",), ("read", "write")):
        for organization in ("org-a", "org-b"):
            caller = plane.tenant(organization, permissions)
            code, _ = await refused(operators.GetInventory(request, **caller))
            assert code is grpc.StatusCode.PERMISSION_DENIED
    none = pb.GetInventoryRequest(cluster_id="cluster-none")
    assert (await refused(operators.GetInventory(none, **plane.operator)))[
        0
    ] is grpc.StatusCode.NOT_FOUND
    empty = await operators.GetInventory(request, **plane.operator)
    assert (empty.observed_at, list(empty.items)) == (0, [])


async def test_an_agent_reports_for_its_own_cluster(
    plane: ControlPlane,
    operators: rpc.ClustersServiceAsyncStub,
    channel: grpc.aio.Channel,
    agent: AgentClient,
    enrolled: pb.EnrollResponse,
) -> None:
    other = await plane.enroll("west")
    west = AgentClient(channel, other.credential, "session-1", executor="kubernetes")
    await agent.watch()
    await west.watch()
    await agent.observe(node("a"), snapshot=True)
    await west.observe(snapshot=True)
    assert list(await seen(plane, operators, enrolled.cluster_id)) == ["node/a"]
    assert not await seen(plane, operators, other.cluster_id)
    anonymous = AgentClient(channel, "wla-nobodys")
    assert (await refused(anonymous.observe(snapshot=True)))[0] is grpc.StatusCode.UNAUTHENTICATED
