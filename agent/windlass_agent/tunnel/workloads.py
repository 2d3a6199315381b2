"""The ways to an agent's own workloads, where there is no Kubernetes beside them."""

from windlass.api.clusters.v1 import clusters_pb2 as pb
from windlass_agent.control_plane.connection import ControlPlane
from windlass_agent.executors.port import Executor
from windlass_agent.tunnel.direct import MachineDoor
from windlass_agent.tunnel.open_connections import OpenConnections
from windlass_agent.tunnel.targets import Targets
from windlass_agent.tunnel.tunnel import Tunnel


class WorkloadAccess:
    """Runs the tunnel to an agent's own workloads, and opens its door to them if it has one."""

    def __init__(
        self,
        control: ControlPlane,
        executor: Executor,
        door: MachineDoor | None = None,
        open_connections: OpenConnections | None = None,
    ):
        """`open_connections` counts those of gateways, whichever way they come."""
        self._executor = executor
        self._door = door
        open_connections = open_connections or OpenConnections()
        if door is not None:
            door.serve(self._endpoint)
            open_connections.include(lambda: door.connections)
        self._tunnel = Tunnel(control, Targets(endpoint=self._endpoint), open_connections)

    def take(self, spec: pb.ClusterSpec) -> None:
        """Takes who may come directly; there is no cluster to set up."""
        if self._door is not None:
            self._door.trust(spec.gateways_authority)

    async def run(self, session_id: str) -> None:
        """Runs until cancelled, within a session that the control plane has accepted."""
        await self._tunnel.run(session_id)

    def _endpoint(self, workload_id: str) -> str:
        for status in self._executor.statuses():
            if status.workload_id == workload_id and status.phase == pb.PHASE_RUNNING:
                return status.endpoint
        return ""
