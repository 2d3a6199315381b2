"""Rows to the workloads that clusters are told of."""

import msgspec

from windlass.api.clusters.v1 import clusters_pb2 as pb
from windlass.federation.admission import admit
from windlass.federation.domain import NOTE, OWNER, Federated, ObjectState

# What a note shows of its guest's observations.
MAX_OBSERVATIONS = 32
# Of what a worker's agent says; a good one keeps well below.
STATUS_BYTES = 64 * 1024
LOG_CHARACTERS = 16 * 1024
MESSAGE_LENGTH = 1000


def guest(row: Federated) -> pb.Workload:
    """The object as its worker's cluster runs it."""
    admitted = admit(row.kind, row.spec)
    return pb.Workload(
        id=row.id,
        kind=pb.WORKLOAD_KIND_RUN_TO_COMPLETION,
        owner=OWNER,
        organization_id=row.organization_id,
        project_id=row.project_id,
        cluster_id=row.worker,
        generation=row.generation,
        desired=row.desired,
        resources=admitted.resources,
        placement=pb.Placement(**row.place),
        guest=pb.GuestWorkload(
            kind=row.kind,
            name=row.name,
            attempt=row.attempt,
            spec=msgspec.json.encode(admitted.spec),
        ),
    )


def note(row: Federated) -> pb.Workload:
    """The note that the object's own cluster writes on it."""
    guest = pb.WorkloadStatus.FromString(row.guest)
    said = [*_own(row), *guest.observations][-MAX_OBSERVATIONS:]
    del guest.observations[:]
    gone = row.state is ObjectState.GONE
    return pb.Workload(
        id=f"{NOTE}{row.id}",
        kind=pb.WORKLOAD_KIND_STATUS_MIRROR,
        owner=OWNER,
        organization_id=row.organization_id,
        project_id=row.project_id,
        cluster_id=row.cluster_id,
        generation=row.revision,
        desired=pb.DESIRED_STATE_DELETED if gone else pb.DESIRED_STATE_RUNNING,
        placement=pb.Placement(namespace=row.namespace),
        note=pb.ObjectNote(
            uid=row.uid,
            namespace=row.namespace,
            name=row.name,
            kind=row.kind,
            cluster="" if row.state is ObjectState.WAITING else row.worker_name,
            guest=guest,
            failure=row.failure,
            message=row.message,
            released=row.state in (ObjectState.RELEASED, ObjectState.GONE),
            observations=said,
        ),
    )


def bounded(status: pb.WorkloadStatus) -> pb.WorkloadStatus:
    """The status that a cluster reports of a guest, cut to its bounds: it goes on to another
    cluster.
    """
    if len(status.object_status) > STATUS_BYTES:
        status.object_status = b"{}"
    status.log_tail = status.log_tail[-LOG_CHARACTERS:]
    status.message = status.message[:MESSAGE_LENGTH]
    del status.observations[:-MAX_OBSERVATIONS]
    for one in status.observations:
        one.key, one.message = one.key[:MESSAGE_LENGTH], one.message[:MESSAGE_LENGTH]
    return status


def _own(row: Federated) -> list[pb.Observation]:
    """The observations of it that no cluster makes."""
    if not row.message_at_ms:
        return []
    if row.failure:
        kind, message = row.failure, row.message
    elif row.state is ObjectState.WAITING:
        kind, message = "Waiting", row.message
    else:
        kind, message = "Placed", f"Runs in cluster {row.worker_name}: {row.message}"
    key = f"{row.attempt}/{kind}"
    if kind == "Waiting":
        key += f"/{row.message_at_ms}"
    warning = kind != "Placed"
    return [pb.Observation(key=key, at_ms=row.message_at_ms, warning=warning, message=message)]
