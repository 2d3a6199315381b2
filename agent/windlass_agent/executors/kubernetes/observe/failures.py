"""Diagnosis of an attempt's objects: a phase, a reason and a remedy. Pure."""

import re

from windlass.api.clusters.v1 import clusters_pb2 as pb
from windlass_agent.executors.kubernetes.observe import terminations
from windlass_agent.executors.kubernetes.observe.diagnosis import (
    ASK,
    Diagnosis,
    failure,
    sentence,
    starts,
    unstartable,
    waits,
)
from windlass_agent.executors.kubernetes.observe.refusals import noted, without_volume
from windlass_agent.executors.kubernetes.observe.snapshot import AttemptSnapshot, PodSnapshot
from windlass_agent.kueue.workload import Condition, Workload

_STARTING = frozenset({"", "ContainerCreating", "PodInitializing"})
_PULLS = frozenset(
    {
        "ErrImagePull",
        "ImagePullBackOff",
        "ErrImageNeverPull",
        "ImageInspectError",
        "RegistryUnavailable",
        "SignatureValidationFailed",
    }
)
_FULL = re.compile(r"Insufficient|Too many pods|cannot allocate all claims|in use")
# What a node says that is not ready or cordoned, among others.
_KEPT_OUT = re.compile(r"untolerated taint|were unschedulable")


def diagnose(snapshot: AttemptSnapshot) -> Diagnosis:
    """The diagnosis of an attempt; the worst certain one comes first."""
    root = snapshot.root
    found: Diagnosis | None
    if root is not None and root.completed:
        return Diagnosis(phase=pb.PHASE_SUCCEEDED)
    if found := _evicted(snapshot) or terminations.lost(snapshot) or terminations.failed(snapshot):
        return found
    if root is None or root.deleting:
        return Diagnosis(phase=pb.PHASE_STOPPING, reason="Stopping")
    live = [pod for pod in snapshot.pods if not pod.deleting and not pod.ended]
    if found := troubled(live, short=snapshot.short) or noted(snapshot, live):
        return found
    if any(pod.has_log for pod in snapshot.pods) and all(pod.has_log for pod in live):
        return Diagnosis(phase=pb.PHASE_RUNNING)
    if root.suspended or (snapshot.admission is not None and not snapshot.admission.admitted):
        return queued(snapshot.admission)
    return Diagnosis(phase=pb.PHASE_STARTING, reason="Starting")


def queued(admission: Workload | None) -> Diagnosis:
    """The diagnosis of what Kueue has not admitted."""
    if admission is None:
        return waits("Queued", "Waiting for Kueue to queue it.")
    if not admission.active:
        return _deactivated("")
    if admission.finished is not None:
        said = sentence(admission.finished.message)
        return failure("StartRefused", f"Kueue could not start it: {said} {ASK}")
    if admission.quota_reserved:
        checks = admission.conditions.get("Admitted")
        said = checks.message if checks is not None else ""
        return waits("QuotaReserved", said or "Its quota is reserved.")
    said = admission.waiting.message if admission.waiting is not None else ""
    if "doesn't exist" in said:
        return missing_queue(sentence(said))
    return waits("Queued", said or f"Waiting for quota of {admission.queue}.")


def missing_queue(said: str) -> Diagnosis:
    """Diagnosis of a missing LocalQueue, or of one without a ClusterQueue."""
    message = f"{said} An administrator must assign the project to an existing queue."
    return waits("QueueMissing", message, "setup")


def _evicted(snapshot: AttemptSnapshot) -> Diagnosis | None:
    """Diagnosis of a Workload that Kueue evicted."""
    evicted = snapshot.admission.evicted if snapshot.admission is not None else None
    # Before it ran, being turned back by an admission check is but another wait.
    if evicted is None or evicted.reason == "AdmissionCheck":
        return None
    if evicted.reason.startswith("Deactivated"):
        return _deactivated(evicted.message)
    if evicted.reason == "PodsReadyTimeout":
        said = sentence(evicted.message)
        return failure("Evicted", f"Its pods were not ready in time. {said}")
    return failure("Preempted", sentence(evicted.message) or "Kueue evicted it.")


def _deactivated(said: str) -> Diagnosis:
    words = ("Its Workload was deactivated in Kueue.", sentence(said), ASK)
    return failure("Deactivated", " ".join(word for word in words if word))


def troubled(live: list[PodSnapshot], *, short: bool) -> Diagnosis | None:
    """The worst trouble that keeps one of these pods from running; None without any."""
    troubles = [found for pod in live if (found := _trouble(pod, short=short))]
    return max(troubles, key=lambda one: (one.failed, one.patience != ""), default=None)


def _trouble(pod: PodSnapshot, *, short: bool) -> Diagnosis | None:
    if pod.scheduled is not None and not pod.scheduled.status:
        return _unscheduled(pod.scheduled, short=short)
    for container in (pod.blocked, pod.runner):
        if container is None or container.state != "waiting" or container.reason in _STARTING:
            continue
        said = sentence(container.message or container.reason)
        if container.reason in _PULLS or container.reason == "InvalidImageName":
            return _unpullable(said, failed=container.reason == "InvalidImageName")
        return unstartable(said)
    return None


def _unscheduled(condition: Condition, *, short: bool) -> Diagnosis:
    said = sentence(condition.message)
    if condition.reason != "Unschedulable":
        return waits(condition.reason or "Unschedulable", said)
    if "persistentvolumeclaim" in said.lower():
        return without_volume(said)
    if _FULL.search(said):
        return waits("Unschedulable", f"No node has room for its pod now: {said}")
    if short and _KEPT_OUT.search(said):
        return waits("Unschedulable", f"No available node can run its pod: {said}")
    message = f"No node can run its pod: {said} Ask for less, or have the operator add such nodes."
    return waits("Unschedulable", message, "schedule")


def _unpullable(said: str, *, failed: bool) -> Diagnosis:
    message = (
        f"Its image cannot be pulled: {said} The operator of the cluster must correct "
        "the image's name or the pull secret."
    )
    return failure("ImagePullFailed", message) if failed else starts("ImagePullFailed", message)
