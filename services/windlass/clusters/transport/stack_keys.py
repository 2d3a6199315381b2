"""Keys of serving stacks, which are sealed until an agent is told of them."""

from windlass.api.clusters.v1 import clusters_pb2 as pb
from windlass.core import telemetry
from windlass.core.keyring import Envelope

log = telemetry.logger("clusters")


def open_keys(delta: pb.WorkloadsDelta, envelope: Envelope, cluster_id: str) -> None:
    """Puts each key in the place of its sealed form, for the agent of a cluster.

    One that was not sealed for that cluster does not open, and is left out.
    """
    for workload in delta.workloads:
        if not workload.engine.stack.sealed_key:
            continue
        stack = workload.engine.stack
        try:
            opened = envelope.open(stack.sealed_key, context=cluster_id)
            stack.key = opened.decode()
        except ValueError as error:
            log.error("stack_key_unreadable", workload=workload.id, reason=str(error))
        stack.ClearField("sealed_key")
