"""Pods that hold devices for others: when they do, and who may join them. No I/O."""

from windlass.api.clusters.v1 import clusters_pb2 as pb
from windlass.api.keeper.v1 import keeper_pb2
from windlass_agent.executors.kubernetes.engines.observed import EngineSnapshot
from windlass_agent.executors.kubernetes.observe.snapshot import PodSnapshot
from windlass_agent.executors.kubernetes.render.parts import ClaimHolder

_HELD = keeper_pb2.EngineState(phase=pb.PHASE_RUNNING)


def held(snapshot: EngineSnapshot) -> keeper_pb2.EngineState | None:
    """The state of a lease, in the place of a keeper's word; None until it has its devices."""
    return _HELD if _holding(snapshot) is not None else None


def holder_of(workload: pb.Workload, lease: EngineSnapshot) -> ClaimHolder | None:
    """The pod whose claim a workload joins; None for one of another project, or without devices."""
    root, pod = lease.root, _holding(lease)
    if root is None or pod is None or not root.is_lease or root.deleting:
        return None
    whose = root.project, root.namespace
    if whose != (workload.project_id, workload.placement.namespace):
        return None
    return ClaimHolder(pod.name, pod.uid, "" if root.hosts else pod.claim)


def _holding(snapshot: EngineSnapshot) -> PodSnapshot | None:
    pod = snapshot.pod
    runs = pod is not None and pod.runner is not None and pod.runner.state == "running"
    # One whose devices are counted has them once it runs.
    hosts = snapshot.root is not None and snapshot.root.hosts
    return pod if runs and pod is not None and (pod.claim or hosts) else None
