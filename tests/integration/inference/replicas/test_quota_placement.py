"""Engines start where the quota of Kueue has room, by what the agents of clusters report."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.integration.inference.test_inference import serving, want
from tests.integration.models.test_models import FILES
from tests.support.agents.wire_agent import WireAgent
from tests.support.services.platform import Platform
from tests.support.waiting import until

from windlass.api.clusters.v1 import clusters_pb2
from windlass.api.clusters.v1.clusters_pb2_grpc import ClustersServiceStub
from windlass.api.inference.v1 import inference_pb2 as pb
from windlass.core.ids import EVERYONE
from windlass.core.rpc.auth import Principal

QUEUE = "serving"


class QueueAgent(WireAgent):
    """An agent of a cluster with Kueue, where models for everyone have a queue."""

    executor = "kubernetes"

    async def report_queue(self, *, nominal: int, used: int) -> None:
        """Reports the queue with so many CPUs, and every assignment as set up."""
        quota = clusters_pb2.ResourceQuota(
            flavor="any", resource="cpu", nominal=1000 * nominal, used=1000 * used
        )
        queue = clusters_pb2.ClusterQueue(name=QUEUE, quotas=[quota], active=True)
        item = clusters_pb2.InventoryItem(key=f"cluster_queue/{QUEUE}", cluster_queue=queue)
        await self._stub.ReportInventory(
            clusters_pb2.ReportInventoryRequest(
                session_id=self._session,
                sequence=1,
                snapshot=True,
                items=[item],
                spec_status=clusters_pb2.SpecStatus(revision=self.spec.revision),
            ),
            metadata=self._metadata,
        )


@pytest.fixture
async def platform(database_url: str, tmp_path: Path) -> AsyncIterator[Platform]:
    async with serving(database_url, tmp_path) as (made, _):
        yield made


async def joined(platform: Platform, name: str) -> QueueAgent:
    """A cluster whose engines take two CPUs each, and whose queue has none of three free."""
    agent = await QueueAgent.join(platform.app, name)
    platform.agents.append(agent)
    agent.said["each_engine"] = clusters_pb2.EngineShare(cpu_millis=2000)
    principal = Principal("org", permissions=frozenset({"clusters.write", "platform.write"}))
    operator = (("windlass-principal", platform.gateway.sign_principal(principal)),)
    clusters = platform.app.clients.stub(ClustersServiceStub)
    # Where the gateway would find its engines.
    policy = clusters_pb2.ClusterPolicy(addresses=["10.0.0.9"])
    change = clusters_pb2.UpdateClusterRequest(
        cluster_id=agent.cluster_id, policy=policy, fields=["addresses"]
    )
    await clusters.UpdateCluster(change, metadata=operator)
    assignment = clusters_pb2.Assignment(
        cluster_id=agent.cluster_id, project_id=EVERYONE, namespace="models", cluster_queue=QUEUE
    )
    request = clusters_pb2.PutAssignmentRequest(assignment=assignment)
    await clusters.PutAssignment(request, metadata=operator)
    await until(lambda: agent.spec.assignments)
    await agent.report_queue(nominal=3, used=3)
    await agent.hold()
    return agent


async def test_an_engine_starts_where_its_queue_has_room_now(platform: Platform) -> None:
    agents = [await joined(platform, name) for name in ("east", "west")]
    # Where both had room it would be the first.
    full, roomy = sorted(agents, key=lambda one: one.cluster_id)
    await roomy.report_queue(nominal=3, used=1)
    caller = platform.tenant(platform=True)
    await platform.import_model("tiny", FILES, is_global=True, **caller)
    await want(platform, "tiny")
    await roomy.next_engine("tiny")
    assert not full.engines()
    answer = await platform.inference.ListEngines(pb.ListEnginesRequest(), **platform.tenant())
    (engine,) = answer.engines
    assert engine.placement_reason == "2 CPUs free in its queue serving"
