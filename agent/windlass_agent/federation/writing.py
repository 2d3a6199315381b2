"""Manifests of the objects that mirror remote workloads. Pure."""

import hashlib
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, NamedTuple

import msgspec

from windlass.api.clusters.v1 import clusters_pb2 as pb
from windlass.kubernetes.labels import CLUSTER, FEDERATION, MANAGED_BY, MANAGER_KEY, PREFIX
from windlass_agent.federation.applied import RESOURCES, AppliedObject
from windlass_agent.kube.resources import CONFIGMAPS, EVENTS, Resource

Object = dict[str, Any]
LOG = "log"
FEDERATED = PREFIX + "federated"
# Events go after an hour; what is older is not told again.
EVENT_RETENTION_MS = 3_600_000
_LONGEST_MESSAGE = 1000
# Counters that the API server lets only grow.
_GROWING = ("succeeded", "failed")


class ApplyOperation(NamedTuple):
    """One thing to apply."""

    path: str
    subresource: str
    body: Object


def pieces(applied: AppliedObject, note: pb.ObjectNote, now_ms: int) -> Iterator[ApplyOperation]:
    """All that a note says of an object that is there, or that it is let go of."""
    if applied.held:
        body = mark(applied, hold=not note.released, cluster=note.cluster)
        yield ApplyOperation(applied.path, "", body)
    if note.released:
        return
    # The status comes last: who waits for an end finds the rest.
    for event in events(applied, note, now_ms):
        yield ApplyOperation(EVENTS.path(applied.namespace, event["metadata"]["name"]), "", event)
    if (text := log(applied, note)) is not None:
        yield ApplyOperation(CONFIGMAPS.path(applied.namespace, log_name(applied)), "", text)
    if (said := status(applied, note, time_of(now_ms))) is not None:
        yield ApplyOperation(applied.path, "status", said)


def mark(applied: AppliedObject, *, hold: bool, cluster: str = "") -> Object:
    """Returns our part of its metadata, of just this object; a field that is missing is removed."""
    metadata: Object = {
        "name": applied.name,
        "namespace": applied.namespace,
        "uid": applied.uid,
    }
    if hold:
        metadata["finalizers"] = [FEDERATION]
    if cluster:
        metadata["annotations"] = {CLUSTER: cluster}
    return _of_kind(RESOURCES[applied.kind]) | {"metadata": metadata}


def status(applied: AppliedObject, note: pb.ObjectNote, now: str) -> Object | None:
    """Returns its status as the note has it; None when there is nothing to say."""
    if note.failure:
        said = _failed(applied, note, now)
    elif note.guest.object_status:
        said = msgspec.json.decode(note.guest.object_status, type=Object)
        if applied.kind == "Job":
            said = _job_status(said, applied.status)
    else:
        return None
    body = mark(applied, hold=False)
    return body | {"status": said}


def _job_status(said: Object, before: Object) -> Object:
    """The status that the API server accepts: a new attempt neither restarts nor undoes counts."""
    said.pop("uncountedTerminatedPods", None)
    if "startTime" in before:
        said["startTime"] = before["startTime"]
    for name in _GROWING:
        if most := max(said.get(name, 0), before.get(name, 0)):
            said[name] = most
    return said


def _failed(applied: AppliedObject, note: pb.ObjectNote, now: str) -> Object:
    began = applied.status.get("startTime", now)
    conditions = applied.status.get("conditions") or ()
    for condition in conditions:
        if condition["type"] == "Failed" and condition["status"] == "True":
            return applied.status
    condition = {
        "status": "True",
        "reason": note.failure,
        "message": note.message[:_LONGEST_MESSAGE],
        "lastTransitionTime": now,
    }
    if applied.kind == "JobSet":
        return {"conditions": [condition | {"type": "Failed"}], "restarts": 0}
    condition["lastProbeTime"] = now
    kinds = ("FailureTarget", "Failed")
    counted = {name: applied.status[name] for name in _GROWING if name in applied.status}
    return {
        "startTime": began,
        "conditions": [condition | {"type": kind} for kind in kinds],
        **counted,
    }


def events(applied: AppliedObject, note: pb.ObjectNote, now_ms: int) -> Iterator[Object]:
    """Yields what was observed of it, as Events; repeated they are the same ones."""
    for one in note.observations:
        if one.at_ms < now_ms - EVENT_RETENTION_MS:
            continue
        digest = hashlib.sha256(f"{applied.uid}/{one.key}".encode()).hexdigest()[:16]
        at = time_of(one.at_ms)
        yield _of_kind(EVENTS) | {
            "metadata": {"name": f"{applied.name}.{digest}", "namespace": applied.namespace},
            "involvedObject": _reference(applied),
            "type": "Warning" if one.warning else "Normal",
            "reason": _reason(one.key),
            "message": one.message[:_LONGEST_MESSAGE],
            "firstTimestamp": at,
            "lastTimestamp": at,
            "count": 1,
            "source": {"component": MANAGED_BY[MANAGER_KEY]},
        }


def log_name(applied: AppliedObject) -> str:
    """The ConfigMap that has the end of its log."""
    return f"{applied.kind.lower()}-{applied.name}.windlass-log"


def log(applied: AppliedObject, note: pb.ObjectNote) -> Object | None:
    """Returns the end of its pods' logs, for users of kubectl here; it goes with the object."""
    if not note.guest.log_tail:
        return None
    owner = _reference(applied)
    del owner["namespace"]
    return _of_kind(CONFIGMAPS) | {
        "metadata": {
            "name": log_name(applied),
            "namespace": applied.namespace,
            "labels": MANAGED_BY | {FEDERATED: applied.uid},
            "ownerReferences": [owner],
        },
        "data": {LOG: note.guest.log_tail},
    }


def time_of(at_ms: int) -> str:
    """RFC 3339, in whole seconds as Kubernetes has it."""
    return datetime.fromtimestamp(at_ms // 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _reference(applied: AppliedObject) -> Object:
    kind = RESOURCES[applied.kind]
    return {
        "apiVersion": kind.api_version,
        "kind": kind.kind,
        "name": applied.name,
        "namespace": applied.namespace,
        "uid": applied.uid,
    }


def _of_kind(resource: Resource) -> Object:
    return {"apiVersion": resource.api_version, "kind": resource.kind}


def _reason(key: str) -> str:
    """The word in a key such as `1/Placed`."""
    parts = key.split("/")
    return parts[1] if len(parts) > 1 else parts[0]
