"""A Kubernetes cluster beside its workloads: what it has, and what Windlass keeps there."""

import asyncio

from windlass.api.clusters.v1 import clusters_pb2 as pb
from windlass_agent.control_plane.connection import ControlPlane
from windlass_agent.inventory.inventory import Inventory
from windlass_agent.inventory.watched import Watched
from windlass_agent.kube import Kube
from windlass_agent.spaces.manifests import Around
from windlass_agent.spaces.spaces import Accounts, Spaces


class Premises:
    """Tells the inventory, and brings the spec about; others keep `watched` up to date."""

    def __init__(self, kube: Kube, watched: Watched, control: ControlPlane, around: Around):
        self._spaces = Spaces(kube, watched, around, lambda: self._inventory.changed())
        self._inventory = Inventory(watched, control.report_inventory, self._spaces.status)
        watched.listen(self._inventory.changed)

    def take(self, spec: pb.ClusterSpec) -> None:
        """What the cluster should have from now on."""
        self._spaces.take(spec)

    def has(self, namespace: str) -> bool:
        """Whether a namespace is a project's."""
        return self._spaces.has(namespace)

    def accounts(self, namespace: str) -> Accounts | None:
        """Whom the tunnel may act as there; None where no project of ours is."""
        return self._spaces.accounts(namespace)

    async def run(self, session_id: str) -> None:
        """Until cancelled, within a session that the control plane has accepted."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._spaces.run())
            group.create_task(self._inventory.run(session_id))
