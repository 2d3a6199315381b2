"""The quota of a cluster: what operators put, what its agent is told, what is there."""

from typing import Any

import grpc
import pytest
from tests.support.agents.cluster_agent import AgentClient, refused
from tests.support.services.clusters import ControlPlane

from windlass.api.clusters.v1 import clusters_pb2 as pb
from windlass.api.clusters.v1 import clusters_pb2_grpc as rpc

Code = grpc.StatusCode
GPU = "nvidia.com/gpu"


def queue(name: str, nominal: int = 8, *, cohort: str = "all", **limits: int) -> pb.ClusterQueue:
    amount = pb.ResourceQuota(flavor="h100", resource=GPU, nominal=nominal, **limits)
    return pb.ClusterQueue(name=name, cohort=cohort, quotas=[amount])


FLAVOR = pb.ResourceFlavor(name="h100", node_labels={"gpu": "h100"})


class Quota:
    """The platform's administrator, at one cluster's quota."""

    def __init__(self, plane: ControlPlane, stub: rpc.ClustersServiceAsyncStub, cluster_id: str):
        self.plane, self.stub, self.cluster_id = plane, stub, cluster_id

    async def put(self, *queues: pb.ClusterQueue, delete: Any = (), **spec: Any) -> pb.Quota:
        put = pb.QuotaSpec(cluster_queues=queues, **spec)
        request = pb.PutQuotaRequest(cluster_id=self.cluster_id, put=put, delete=delete)
        return await self.stub.PutQuota(request, **self.plane.operator)

    async def get(self) -> pb.Quota:
        request = pb.GetQuotaRequest(cluster_id=self.cluster_id)
        return await self.stub.GetQuota(request, **self.plane.operator)


@pytest.fixture
def quota(
    plane: ControlPlane, operators: rpc.ClustersServiceAsyncStub, enrolled: pb.EnrollResponse
) -> Quota:
    return Quota(plane, operators, enrolled.cluster_id)


async def test_what_is_put_goes_down_and_what_is_there_comes_up(
    quota: Quota, agent: AgentClient
) -> None:
    await agent.watch()
    put = await quota.put(queue("a"), queue("b", 4, borrowing_limit=2), flavors=[FLAVOR])
    assert [one.name for one in put.spec.cluster_queues] == ["a", "b"]
    assert put.message == "The cluster's agent has not applied it yet."
    spec = (await agent.next()).spec
    assert spec.quota == put.spec
    there = [queue("a"), queue("b", 4, borrowing_limit=2)]
    there[1].quotas[0].used = 6
    there[1].pending = 3
    await agent.observe(
        *(pb.InventoryItem(key=f"cluster_queue/{one.name}", cluster_queue=one) for one in there),
        pb.InventoryItem(key="flavor/h100", flavor=FLAVOR),
        snapshot=True,
        status=pb.SpecStatus(revision=spec.revision),
    )
    found = await quota.get()
    assert found.message == ""
    lender, borrower = (one.quotas[0] for one in found.cluster_queues)
    assert (borrower.used, borrower.borrowed, borrower.attainable) == (6, 2, 6)
    assert (lender.lent, lender.attainable, lender.available) == (2, 12, 6)
    assert found.cluster_queues[1].pending == 3
    await agent.observe(status=pb.SpecStatus(revision=spec.revision, quota_error="No Kueue."))
    assert (await quota.get()).message == "No Kueue."


async def test_placement_hears_what_queues_could_hold(
    plane: ControlPlane, quota: Quota, agent: AgentClient
) -> None:
    await agent.watch()
    await agent.heartbeat()
    await agent.observe(
        *(
            pb.InventoryItem(key=f"cluster_queue/{one.name}", cluster_queue=one)
            for one in (queue("a"), queue("b"))
        ),
        snapshot=True,
    )
    (found,) = (await plane.capacity()).queues
    assert found.cluster_id == quota.cluster_id
    assert [one.quotas[0].attainable for one in found.queues] == [16, 16]


async def test_a_change_is_whole_or_none(quota: Quota) -> None:
    await quota.put(queue("a"), flavors=[FLAVOR])
    code, _ = await refused(quota.put(queue("b"), queue("c", -1)))
    assert code is Code.INVALID_ARGUMENT
    assert [one.name for one in (await quota.get()).spec.cluster_queues] == ["a"]
    await quota.put(queue("b"), delete=["cluster_queue/a"])
    assert [one.name for one in (await quota.get()).spec.cluster_queues] == ["b"]
    assert (await refused(quota.put(delete=["cluster_queue/a"])))[0] is Code.NOT_FOUND


async def test_a_flavor_may_be_the_clusters_own(quota: Quota, agent: AgentClient) -> None:
    assert (await refused(quota.put(queue("a"))))[0] is Code.INVALID_ARGUMENT
    await agent.watch()
    await agent.observe(pb.InventoryItem(key="flavor/h100", flavor=FLAVOR), snapshot=True)
    assert await quota.put(queue("a"))


async def test_a_queue_that_is_in_use_stays(plane: ControlPlane, quota: Quota) -> None:
    await quota.put(queue("a"), queue("b"), flavors=[FLAVOR])
    project = await plane.project()

    async def assign(name: str) -> None:
        wanted = pb.Assignment(
            cluster_id=quota.cluster_id, project_id=project.id, cluster_queue=name
        )
        request = pb.PutAssignmentRequest(assignment=wanted)
        await quota.stub.PutAssignment(request, **plane.operator)

    await assign("a")
    used = (Code.FAILED_PRECONDITION, "queue_in_use")
    assert await refused(quota.put(delete=["cluster_queue/a"])) == used
    await assign("b")
    await quota.put(delete=["cluster_queue/a"])
    assert (await refused(quota.put(delete=["flavor/h100"])))[0] is Code.INVALID_ARGUMENT


async def test_quota_is_the_administrators(
    plane: ControlPlane, operators: rpc.ClustersServiceAsyncStub, quota: Quota
) -> None:
    get = pb.GetQuotaRequest(cluster_id=quota.cluster_id)
    put = pb.PutQuotaRequest(cluster_id=quota.cluster_id)
    for permissions in ((), ("read",)):
        for organization in ("org-a", "org-b"):
            caller = plane.tenant(organization, permissions)
            for call in (operators.GetQuota(get, **caller), operators.PutQuota(put, **caller)):
                assert (await refused(call))[0] is Code.PERMISSION_DENIED
    none = Quota(plane, operators, "cluster-none")
    assert (await refused(none.get()))[0] is Code.NOT_FOUND
    assert (await refused(none.put(flavors=[FLAVOR])))[0] is Code.NOT_FOUND
