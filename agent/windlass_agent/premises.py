"""A Kubernetes cluster beside its workloads: what it has, and what Windlass keeps there."""

import asyncio

from windlass.api.clusters.v1 import clusters_pb2 as pb
from windlass_agent.control_plane.connection import ControlPlane
from windlass_agent.inventory.informers import ClusterInformers
from windlass_agent.inventory.inventory import Inventory
from windlass_agent.kube import Kube
from windlass_agent.namespaces.controller import Accounts, NamespaceController
from windlass_agent.namespaces.manifests import ManifestContext


class Premises:
    """Tells the inventory, and brings the spec about; others keep `informers` up to date."""

    def __init__(
        self,
        kube: Kube,
        informers: ClusterInformers,
        control: ControlPlane,
        context: ManifestContext,
    ):
        self._namespaces = NamespaceController(
            kube, informers, context, lambda: self._inventory.changed()
        )
        self._inventory = Inventory(informers, control.report_inventory, self._namespaces.status)
        informers.listen(self._inventory.changed)

    def take(self, spec: pb.ClusterSpec) -> None:
        """What the cluster should have from now on."""
        self._namespaces.take(spec)

    def has(self, namespace: str) -> bool:
        """Whether a namespace is a project's."""
        return self._namespaces.has(namespace)

    def accounts(self, namespace: str) -> Accounts | None:
        """Whom the tunnel may act as there; None where no project of ours is."""
        return self._namespaces.accounts(namespace)

    async def run(self, session_id: str) -> None:
        """Until cancelled, within a session that the control plane has accepted."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._namespaces.run())
            group.create_task(self._inventory.run(session_id))
