"""An agent's controller of a cluster, under the rights that its chart grants and no others."""

import asyncio
import secrets
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

from tests.cluster.cluster import TestCluster
from tests.cluster.objects.chart import Rights
from tests.support.waiting import wait_until

from windlass.api.clusters.v1 import clusters_pb2 as pb
from windlass_agent.cluster_controller import ClusterController
from windlass_agent.executors.kubernetes.settings import ClusterSettings
from windlass_agent.inventory.informers import ClusterInformers
from windlass_agent.kube import Kube
from windlass_agent.namespaces.manifests import ManifestContext

T = TypeVar("T")


class Told:
    """Hears what the clusters service would: the inventory by key, and how the spec fares.

    The service itself has Postgres and tests of its own; here the spec comes from the test.
    """

    def __init__(self) -> None:
        self.items: dict[str, pb.InventoryItem] = {}
        self.status = pb.SpecStatus()
        self.reports: list[pb.ReportInventoryRequest] = []
        self._news = asyncio.Condition()

    async def report_inventory(self, request: pb.ReportInventoryRequest) -> None:
        if request.snapshot:
            self.items.clear()
        else:
            assert request.sequence == self.reports[-1].sequence + 1
        for key in request.gone:
            del self.items[key]
        self.items.update({item.key: item for item in request.items})
        if request.HasField("spec_status"):
            self.status = request.spec_status
        self.reports.append(request)
        async with self._news:
            self._news.notify_all()

    async def until(self, find: Callable[[], T | None], seconds: float = 90) -> T:
        """The first true answer of `find`."""
        async with asyncio.timeout(seconds), self._news:
            while not (found := find()):
                await self._news.wait()
            return found


@dataclass
class Settled:
    """A running controller; `spec` is what it was told last."""

    controller: ClusterController
    told: Told
    kube: Kube
    cluster_id: str = field(default_factory=lambda: f"cluster-{secrets.token_hex(4)}")
    spec: pb.ClusterSpec = field(default_factory=pb.ClusterSpec)

    def assignment(self, namespace: str, **fields: Any) -> pb.Assignment:
        """Of a project of its own."""
        named = {"project_id": f"proj_{namespace}"} | fields
        return pb.Assignment(cluster_id=self.cluster_id, namespace=namespace, **named)

    async def bring_about(self, **fields: Any) -> pb.SpecStatus:
        """Wants a spec, and waits until it is seen to."""
        self.spec = pb.ClusterSpec(
            cluster_id=self.cluster_id, revision=self.spec.revision + 1, **fields
        )
        self.controller.take(self.spec)
        revision = self.spec.revision
        await self.told.until(lambda: self.told.status.revision >= revision)
        return self.told.status


async def seen(condition: Callable[[], object], what: str) -> None:
    """Waits with kubectl until a condition holds, while the controller goes on."""
    await asyncio.to_thread(wait_until, condition, what)


@asynccontextmanager
async def settled(cluster: TestCluster, rights: Rights, **settings: Any) -> AsyncIterator[Settled]:
    """A controller until the end of the block; `settings` are further ones of the cluster."""
    told = Told()
    context = ManifestContext(
        account=rights.name,
        roles=rights.name,
        settings=ClusterSettings(
            agent_namespace=rights.name,
            agent_address=f"{rights.name}.{rights.name}.svc:8443",
            **settings,
        ),
    )
    async with await Kube.connect(rights.kubeconfig) as kube:
        informers = ClusterInformers(kube)
        controller = ClusterController(kube, informers, told, context)  # type: ignore[arg-type]  # a stub of the control plane
        running = asyncio.gather(informers.run(), controller.run("session-1"))
        try:
            yield Settled(controller, told, kube)
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
