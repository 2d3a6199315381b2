"""A Kubernetes cluster beside its workloads: what it has, and what Windlass keeps there."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from windlass.api.clusters.v1 import clusters_pb2 as pb
from windlass_agent.control_plane.connection import ControlPlane
from windlass_agent.inventory.informers import ClusterInformers
from windlass_agent.inventory.inventory import Inventory
from windlass_agent.kube import Kube
from windlass_agent.namespaces.controller import Accounts, NamespaceController
from windlass_agent.namespaces.manifests import ManifestContext


class ClusterController:
    """Reports the inventory and brings the spec about; others keep `informers` up to date.

    What else runs within each session, such as a tunnel, is attached.
    """

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
        self._attached: list[Callable[[str], Coroutine[Any, Any, None]]] = []

    def attach(self, run: Callable[[str], Coroutine[Any, Any, None]]) -> None:
        """Has `run` called with the id of each session, until the session ends."""
        self._attached.append(run)

    def take(self, spec: pb.ClusterSpec) -> None:
        """Takes the desired state of the cluster from now on."""
        self._namespaces.take(spec)

    def has(self, namespace: str) -> bool:
        """Returns True if a namespace is a project's."""
        return self._namespaces.has(namespace)

    def accounts(self, namespace: str) -> Accounts | None:
        """Returns the users that the tunnel may act as there; None where no project of ours is."""
        return self._namespaces.accounts(namespace)

    async def run(self, session_id: str) -> None:
        """Runs until cancelled, within a session that the control plane has accepted."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._namespaces.run())
            group.create_task(self._inventory.run(session_id))
            for run in self._attached:
                group.create_task(run(session_id))
