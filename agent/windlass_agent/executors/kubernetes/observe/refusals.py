"""Diagnosis of objects that the cluster rejected, and of pods never created. Pure."""

import re

from windlass.kubernetes.quantities import millis
from windlass_agent.executors.kubernetes.observe.diagnosis import (
    ASK,
    Diagnosis,
    failure,
    sentence,
    starts,
    waits,
)
from windlass_agent.executors.kubernetes.observe.snapshot import (
    AttemptSnapshot,
    KubeEvent,
    PodSnapshot,
)
from windlass_agent.kube import Forbidden, Invalid, KubeError, ResourceNotFound

_OF_VOLUMES = frozenset(
    {"FailedMount", "FailedAttachVolume", "FailedBinding", "ProvisioningFailed"}
)
# Of a webhook, or of a policy of the API server's own.
_DENIED = re.compile(r"denied (the )?request")
_QUOTA = re.compile(r"(requested|limited): ([^:]*?)(?:, (?=used:|limited:)|$)")


def unlaunched(error: KubeError, namespace: str) -> Diagnosis:
    """The diagnosis of an attempt whose objects were refused."""
    if isinstance(error, ResourceNotFound) and "namespaces" in error.message:
        message = (
            f"Namespace {namespace} does not exist. An administrator must assign the project to "
            "the cluster again."
        )
        return waits("NamespaceMissing", message, "setup")
    if isinstance(error, ResourceNotFound):
        message = f"The cluster does not support its object kinds: {sentence(error.message)}"
        return waits("Unsupported", f"{message} {ASK}", "setup")
    if isinstance(error, Forbidden):
        return refused(error.message)
    if isinstance(error, Invalid):
        return failure("InvalidWorkload", f"The cluster refused it: {sentence(error.message)}")
    return waits("ApiUnavailable", f"The cluster's API does not answer: {sentence(error.message)}")


def refused(said: str) -> Diagnosis:
    """Diagnosis of an admission refusal, by its message."""
    said = sentence(said)
    if "violates PodSecurity" in said:
        message = (
            f"The namespace's Pod Security rejects its pod: {said} The operator "
            "must correct the pod template."
        )
        return starts("PodSecurity", message)
    if "exceeded quota" in said:
        return _over_quota(said)
    if _DENIED.search(said):
        return starts("AdmissionDenied", f"Admission refused it: {said} {ASK}")
    if "serviceaccount" in said.lower() and "not found" in said:
        return waits("SetupIncomplete", f"The project's namespace is not set up: {said}", "setup")
    return starts("Forbidden", f"The cluster prevents its start: {said} {ASK}")


def noted(snapshot: AttemptSnapshot, live: list[PodSnapshot]) -> Diagnosis | None:
    """Diagnosis from events: pods that were not created, volumes that were not mounted.

    Events outlive what they tell of, so only those of what is still waiting count.
    """
    waiting = {pod.name for pod in live if not pod.has_log}
    found = [
        _of_event(event)
        for event in snapshot.events
        if (event.name in waiting if event.kind == "Pod" else not snapshot.pods)
    ]
    return max(found, key=lambda one: (one.failed, one.patience != ""), default=None)


def without_volume(said: str) -> Diagnosis:
    """Diagnosis of a missing volume claim or a failed mount."""
    message = f"A volume of its pod does not exist: {said} The operator must provide it."
    return starts("VolumeMissing", message)


def _of_event(event: KubeEvent) -> Diagnosis:
    if event.reason in _OF_VOLUMES:
        return without_volume(sentence(event.message))
    return refused(event.message)


def _over_quota(said: str) -> Diagnosis:
    """Diagnosis of an exceeded ResourceQuota: used up, or always too small."""
    amounts = dict(_QUOTA.findall(said))
    wanted, most = (_amounts(amounts.get(name, "")) for name in ("requested", "limited"))
    if any(name in most and wanted[name] > most[name] for name in wanted):
        message = (
            f"A ResourceQuota of the namespace can never hold it: {said} Ask for less, or "
            "have the quota raised."
        )
        return failure("QuotaExceeded", message)
    return waits("QuotaExceeded", f"The namespace's ResourceQuota is used up: {said}")


def _amounts(text: str) -> dict[str, int]:
    pairs = (part.partition("=") for part in text.rstrip(".").split(",") if "=" in part)
    return {name.strip(): millis(value.strip()) for name, _, value in pairs}
