"""Status of a remote workload as this cluster's objects show it. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import msgspec

from windlass.api.clusters.v1 import clusters_pb2 as pb
from windlass.kubernetes.labels import GENERATION, GUEST, KIND, WORKLOAD
from windlass_agent.kueue import Workload

Object = Mapping[str, Any]
MAX_OBSERVATIONS = 16
STATUS_BYTES = 32 * 1024
_LONGEST = 1000


@dataclass(frozen=True, kw_only=True)
class Guest:
    """An object of ours that runs, or ran, what another cluster's owner applied."""

    kind: str
    workload: str
    generation: int
    namespace: str
    name: str
    uid: str
    deleting: bool
    suspended: bool
    status: Object

    @property
    def phase(self) -> "pb.Phase.ValueType":
        """The guest's phase."""
        if self._holds("Complete") or self._holds("Completed"):
            return pb.PHASE_SUCCEEDED
        if self._holds("Failed"):
            return pb.PHASE_FAILED
        if self.deleting:
            return pb.PHASE_STOPPING
        if self.suspended:
            return pb.PHASE_PENDING
        parts = (self.status, *(self.status.get("replicatedJobsStatus") or ()))
        ready = any(one.get("ready") for one in parts)
        return pb.PHASE_RUNNING if ready else pb.PHASE_STARTING

    @property
    def ended(self) -> bool:
        """True if nothing of it will run any more."""
        return self.phase in (pb.PHASE_SUCCEEDED, pb.PHASE_FAILED)

    def _holds(self, kind: str) -> bool:
        conditions = self.status.get("conditions") or ()
        return any(one["type"] == kind and one["status"] == "True" for one in conditions)


@dataclass(frozen=True, kw_only=True)
class RemotePod:
    """One of a guest's pods."""

    workload: str
    namespace: str
    name: str
    container: str
    # Whether a container has begun, and whether all have ended.
    has_log: bool
    ended: bool


@dataclass(frozen=True, kw_only=True)
class Happening:
    """An event about a guest's object, or about a pod of it."""

    uid: str
    about: str
    namespace: str
    reason: str
    message: str
    warning: bool
    at_ms: int


def trim_guest(kind: str, item: Object) -> Guest | None:
    """Returns the guest that an object runs; None for other objects."""
    metadata = item["metadata"]
    labels = metadata.get("labels") or {}
    if labels.get(KIND) != GUEST or not labels.get(WORKLOAD):
        return None
    generation = (metadata.get("annotations") or {}).get(GENERATION, "")
    return Guest(
        kind=kind,
        workload=labels[WORKLOAD],
        generation=int(generation) if generation.isdecimal() else 0,
        namespace=metadata["namespace"],
        name=metadata["name"],
        uid=metadata["uid"],
        deleting="deletionTimestamp" in metadata,
        suspended=bool((item.get("spec") or {}).get("suspend")),
        status=item.get("status") or {},
    )


def trim_pod(item: Object) -> RemotePod | None:
    """Returns a guest's pod; None for other pods."""
    metadata, status = item["metadata"], item.get("status") or {}
    labels = metadata.get("labels") or {}
    if labels.get(KIND) != GUEST or not labels.get(WORKLOAD):
        return None
    containers = status.get("containerStatuses") or ()
    return RemotePod(
        workload=labels[WORKLOAD],
        namespace=metadata["namespace"],
        name=metadata["name"],
        container=item["spec"]["containers"][0]["name"],
        has_log=any("waiting" not in (one.get("state") or {}) for one in containers),
        ended=status.get("phase") in ("Succeeded", "Failed"),
    )


def trim_event(prefix: str, item: Object) -> Happening | None:
    """Returns an event of a guest, whose names begin with `prefix`; None for other events."""
    about = item.get("involvedObject") or {}
    name = about.get("name") or ""
    if not name.startswith(prefix) or about.get("kind") not in ("Pod", "Job", "JobSet"):
        return None
    at = item.get("lastTimestamp") or item.get("eventTime") or ""
    return Happening(
        uid=item["metadata"]["uid"],
        about=name,
        namespace=about.get("namespace", ""),
        reason=item.get("reason") or "Event",
        message=(item.get("message") or "")[:_LONGEST],
        warning=item.get("type") == "Warning",
        at_ms=int(datetime.fromisoformat(at).timestamp() * 1000) if at else 0,
    )


def status_of(
    guest: Guest,
    wanted: pb.Workload,
    happenings: Sequence[Happening],
    admission: Workload | None,
    tail: str,
) -> pb.WorkloadStatus:
    """The status of a guest that is there, for the control plane."""
    status = {name: value for name, value in guest.status.items() if value is not None}
    status.pop("uncountedTerminatedPods", None)
    data = msgspec.json.encode(status)
    waiting = admission.waiting if admission is not None else None
    latest = sorted(happenings, key=lambda one: one.at_ms)[-MAX_OBSERVATIONS:]
    return pb.WorkloadStatus(
        workload_id=wanted.id,
        generation=wanted.generation,
        phase=guest.phase,
        reason="Queued" if waiting is not None else "",
        message=waiting.message[:_LONGEST] if waiting is not None else "",
        queue=admission.queue if admission is not None else "",
        object_status=data if len(data) <= STATUS_BYTES else b"{}",
        log_tail=tail,
        observations=[
            pb.Observation(
                key=f"{one.uid}/{one.reason}",
                at_ms=one.at_ms,
                warning=one.warning,
                message=f"{one.message} ({one.about})",
            )
            for one in latest
        ],
    )


def still_running(status: pb.WorkloadStatus) -> pb.WorkloadStatus:
    """The same as if it had not ended yet."""
    status.phase = pb.PHASE_RUNNING
    status.ClearField("object_status")
    return status
