"""Domain to wire."""

from windlass.api.clusters.v1 import clusters_pb2 as pb
from windlass.clusters.domain import Change, Cluster


def cluster(found: Cluster) -> pb.Cluster:
    """A cluster with its capacity; what is placed counts as used, started or not."""
    capacity = pb.Capacity.FromString(found.capacity)
    capacity.used_slots = found.placed_jobs
    capacity.used_engine_slots = found.placed_engines
    return pb.Cluster(
        id=found.id,
        name=found.name,
        created_at=found.created_at,
        last_seen_at=found.last_seen_at,
        live=found.live,
        capacity=capacity,
        agent_version=found.agent_version,
        executor=found.executor,
    )


def workloads_delta(change: Change, *, snapshot: bool) -> pb.WorkloadsDelta:
    """What a cluster should run beyond the last message."""
    return pb.WorkloadsDelta(
        snapshot=snapshot,
        workloads=map(pb.Workload.FromString, change.messages),
        revision=change.revision,
    )


def status_delta(change: Change, *, snapshot: bool) -> pb.StatusDelta:
    """What an owner's workloads do beyond the last message."""
    return pb.StatusDelta(
        snapshot=snapshot, statuses=map(pb.WorkloadStatus.FromString, change.messages)
    )
