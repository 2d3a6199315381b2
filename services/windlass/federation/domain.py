"""Federated objects and their transitions; pure.

An object is known by its cluster and uid. `state` says where it stands:

| state    | nothing of it runs | what comes next                                             |
|----------|--------------------|-------------------------------------------------------------|
| WAITING  | yes                | a cluster is chosen, or it is refused, or it is deleted     |
| PLACED   |                    | it ends, its cluster loses it, or it is deleted             |
| ENDED    |                    | it is deleted; what ran is kept until then                  |
| STOPPING |                    | its worker says that nothing of it is left, or is lost      |
| RELEASED | yes                | its own cluster says that it is gone                        |
| GONE     | yes                | its row goes                                                |
"""

from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import Any

from windlass.api.clusters.v1 import clusters_pb2 as pb
from windlass.residency.rule import MOVED
from windlass.workload_phases import TERMINAL_PHASES

KINDS = ("Job", "JobSet")
OWNER = "federation"
# Marks the workload that tells an object's own cluster what to write on it.
NOTE = "note-"
# One that could not be placed is looked at again after this long.
RETRY_DELAY_MS = 2000


class ObjectState(IntEnum):
    """States of an object."""

    WAITING = 1
    PLACED = 2
    ENDED = 3
    STOPPING = 4
    RELEASED = 5
    GONE = 6


S = ObjectState


@dataclass(frozen=True, slots=True, kw_only=True)
class Federated:
    """One object. Times are Unix milliseconds; 0 means not yet."""

    id: str
    cluster_id: str
    uid: str
    namespace: str
    name: str
    kind: str
    # As its agent told it, JSON.
    spec: bytes
    created_at_ms: int
    deleting: bool = False
    state: ObjectState = S.WAITING
    # The namespace's when it was placed.
    organization_id: str = ""
    project_id: str = ""
    # Where it runs, or ran.
    worker: str = ""
    worker_name: str = ""
    # A serialized Placement.
    place: dict[str, Any] = field(default_factory=dict)
    attempt: int = 0
    # Of what its worker should do; grows with each change of that.
    generation: int = 0
    # Of all that is to be told, and what of it was told.
    revision: int = 1
    told: int = 0
    # Why it waits, is where it is, or failed; `failure` is a word, empty unless it failed.
    message: str = ""
    failure: str = ""
    message_at_ms: int = 0
    not_before_ms: int = 0
    # A serialized WorkloadStatus, the newest that was accepted.
    guest: bytes = b""

    @property
    def desired(self) -> "pb.DesiredState.ValueType":
        """The desired state of its workload at the worker."""
        if self.state is S.PLACED:
            return pb.DESIRED_STATE_RUNNING
        # What has ended is not begun again, should its object be lost.
        return pb.DESIRED_STATE_STOPPED if self.state is S.ENDED else pb.DESIRED_STATE_DELETED


def told(row: Federated, *, spec: bytes, deleting: bool) -> Federated:
    """The row after its agent's report. A spec counts until the object is placed."""
    if row.state is S.WAITING and spec and spec != row.spec:
        row = replace(row, spec=spec, not_before_ms=0)
    if not deleting or row.deleting:
        return row
    row = _changed(row, deleting=True)
    if row.state is S.WAITING or not row.worker:
        return replace(row, state=S.RELEASED)
    return replace(row, state=S.STOPPING, generation=row.generation + 1)


def refused(row: Federated, reason: str, message: str, now: int) -> Federated:
    """Ends an object that can never run, for a reason that its owner can correct."""
    # Where it was, if anywhere, it ends.
    return _changed(
        row,
        state=S.ENDED,
        generation=row.generation + 1,
        failure=reason,
        message=message,
        message_at_ms=now,
    )


def waits(row: Federated, message: str, now: int) -> Federated:
    """No cluster takes it now."""
    row = replace(row, not_before_ms=now + RETRY_DELAY_MS)
    return row if row.message == message else _changed(row, message=message, message_at_ms=now)


def placed(
    row: Federated, assignment: pb.Assignment, cluster_name: str, reason: str, now: int
) -> Federated:
    """A cluster was chosen, where the project is assigned so."""
    place = {
        "namespace": assignment.namespace,
        "queue": assignment.local_queue,
        "priority_class": assignment.priority_class,
        "node_selector": dict(assignment.node_selector),
    }
    return _changed(
        row,
        state=S.PLACED,
        organization_id=assignment.organization_id,
        project_id=assignment.project_id,
        worker=assignment.cluster_id,
        worker_name=cluster_name,
        place=place,
        attempt=row.attempt + 1,
        generation=row.generation + 1,
        message=reason,
        message_at_ms=now,
    )


def observed(
    row: Federated, status: pb.WorkloadStatus, *, max_attempts: int, now: int
) -> Federated:
    """The row after its worker's report; unchanged for another generation or cluster."""
    if (status.generation, status.cluster_id) != (row.generation, row.worker):
        return row
    over = status.phase in TERMINAL_PHASES
    if row.state is S.STOPPING:
        return _changed(row, state=S.RELEASED) if over else row
    if row.state not in (S.PLACED, S.ENDED):
        return row
    if row.state is S.PLACED and (status.phase == pb.PHASE_STOPPED or _is_lost(status)):
        return lost(
            row, status.message or "Its cluster gave it up.", max_attempts=max_attempts, now=now
        )
    if not status.object_status:
        # Nothing is there any more, or it never came to be.
        if row.state is S.PLACED and status.phase == pb.PHASE_FAILED:
            return refused(row, status.reason or "Failed", status.message, now)
        if row.state is S.ENDED:
            return row
    data = status.SerializeToString()
    if data == row.guest:
        return row
    row = _changed(row, guest=data)
    if over and row.state is S.PLACED:
        return replace(row, state=S.ENDED, generation=row.generation + 1)
    return row


def lost(row: Federated, why: str, *, max_attempts: int, now: int) -> Federated:
    """Handles an object that its worker has lost, or whose worker is silent."""
    if row.state is S.STOPPING:
        return _changed(row, state=S.RELEASED)
    if row.state is not S.PLACED:
        return row
    if row.attempt >= max_attempts:
        return refused(row, "AttemptsExhausted", f"It was lost {max_attempts} times. {why}", now)
    # Should its worker come back, it is to know that nothing of it is wanted there.
    return _changed(
        row,
        state=S.WAITING,
        generation=row.generation + 1,
        message=why,
        message_at_ms=now,
        not_before_ms=0,
    )


def noted(row: Federated, status: pb.WorkloadStatus) -> Federated:
    """The row after its own cluster's report of the note: STOPPED when the object is gone."""
    gone = status.phase == pb.PHASE_STOPPED or _is_lost(status)
    if not gone or status.cluster_id != row.cluster_id:
        return row
    if row.state is S.RELEASED:
        return _changed(row, state=S.GONE)
    return told(row, spec=b"", deleting=True)


def _is_lost(status: pb.WorkloadStatus) -> bool:
    return status.phase == pb.PHASE_FAILED and status.reason in ("ClusterUnregistered", MOVED)


def _changed(row: Federated, **values: Any) -> Federated:
    return replace(row, revision=row.revision + 1, **values)
