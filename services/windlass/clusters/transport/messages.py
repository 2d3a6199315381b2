"""Conversion of clusters' records to messages of the contract."""

from collections.abc import Iterator, Sequence

from windlass.api.clusters.v1 import clusters_pb2 as pb
from windlass.clusters.domain import policy
from windlass.clusters.domain.borrowing import worked_out
from windlass.clusters.domain.records import ChangeBatch, Cluster, Issued
from windlass.core.clock import now_seconds
from windlass.core.db.paging import stream_pages

INT32 = 2**31 - 1


def cluster(found: Cluster, *, with_models: bool = False) -> pb.Cluster:
    """A cluster with its capacity; what is placed counts as used, started or not.

    `with_models` for those who may know what models of all tenants are there.
    """
    decided, said = found.policy, pb.Capacity.FromString(found.capacity)
    capacity = policy.granted(decided, said)
    if not with_models:
        del capacity.model_versions[:]
    capacity.used_slots = found.placed_jobs
    capacity.used_engine_slots = found.placed_engines
    if seen := found.observed:
        capacity.gpus = min(seen.gpus, INT32)
        capacity.used_gpus = min(seen.used_gpus, INT32)
        capacity.cpus = min(seen.cpu_millis // 1000, INT32)
        capacity.memory_bytes = seen.memory_bytes
    return pb.Cluster(
        id=found.id,
        name=found.name,
        created_at=found.created_at,
        last_seen_at=found.last_seen_at,
        live=found.live,
        capacity=capacity,
        agent_version=found.agent_version,
        executor=decided.executor,
        roles=decided.roles,
        shared=decided.shared,
        addresses=decided.addresses,
        max_slots=decided.max_slots,
        max_engine_slots=decided.max_engine_slots,
        geography=decided.geography,
        embedded=decided.embedded,
        warnings=policy.warnings(decided, found.reported_executor, said),
    )


def enrolled(issued: Issued, credential: str) -> pb.EnrollResponse:
    """A credential, for the agent that it was made for."""
    left = max(1, issued.expires_at - now_seconds()) if issued.expires_at else 0
    return pb.EnrollResponse(
        cluster_id=issued.cluster_id,
        credential=credential,
        expires_at=issued.expires_at,
        lifetime_seconds=left,
    )


def cluster_queues(cluster_id: str, items: Sequence[pb.InventoryItem]) -> pb.ClusterQueues:
    """A cluster's queues with what each could hold and has free."""
    queues = [item.cluster_queue for item in items if item.HasField("cluster_queue")]
    cohorts = [item.cohort for item in items if item.HasField("cohort")]
    return pb.ClusterQueues(cluster_id=cluster_id, queues=worked_out(queues, cohorts))


def workloads_deltas(
    change: ChangeBatch, *, snapshot: bool, paged: bool
) -> Iterator[pb.WorkloadsDelta]:
    """Yields the changed workloads of a cluster; in one message unless `paged`."""
    workloads = map(pb.Workload.FromString, change.messages)
    pages = stream_pages(workloads) if paged else iter([(list(workloads), False)])
    for number, (page, more) in enumerate(pages):
        yield pb.WorkloadsDelta(
            snapshot=snapshot and not number,
            workloads=page,
            revision=change.revision,
            more=more,
        )


def status_deltas(change: ChangeBatch, *, snapshot: bool) -> Iterator[pb.StatusDelta]:
    """Yields the changed statuses of an owner's workloads."""
    statuses = map(pb.WorkloadStatus.FromString, change.messages)
    for number, (page, more) in enumerate(stream_pages(statuses)):
        yield pb.StatusDelta(snapshot=snapshot and not number, statuses=page, more=more)
