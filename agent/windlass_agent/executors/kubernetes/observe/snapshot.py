"""Snapshot of an attempt's objects, reduced to the fields that matter. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from itertools import chain
from typing import Any, NamedTuple

from windlass.kubernetes import labels
from windlass_agent.executors.kubernetes.overlay import CONTAINER
from windlass_agent.executors.kubernetes.settings import CLAIM
from windlass_agent.kueue.workload import Condition, Workload

Object = Mapping[str, Any]
_LONGEST = 2000
# Events that say something no object's status says.
_TELLING = frozenset(
    {
        "FailedCreate", "FailedMount", "FailedAttachVolume", "FailedCreatePodSandBox",
        "FailedResourceClaimCreation", "FailedBinding", "ProvisioningFailed",
        "JobCreationFailed", "FailedToCreateWorkload", "ErrWorkloadCompose",
    }
)  # fmt: skip


class Key(NamedTuple):
    """Identity of an attempt of a workload."""

    workload: str
    attempt: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RootObject:
    """The Job, JobSet or TrainJob whose outcome is that of the attempt."""

    kind: str
    key: Key
    job_id: str
    generation: int
    namespace: str
    name: str
    uid: str
    queue: str
    # Asked to go; there until nothing of it runs.
    deleting: bool
    suspended: bool
    conditions: Mapping[str, Condition]

    @property
    def completed(self) -> bool:
        """True if every pod ended well."""
        return any(self._holds(name) for name in ("Complete", "Completed"))

    @property
    def failed(self) -> Condition | None:
        """Returns why it cannot succeed any more; pods may still be ending."""
        return self._holds("Failed") or self._holds("FailureTarget")

    @property
    def ended(self) -> bool:
        """True if its controller has finished with it."""
        return self.completed or self._holds("Failed") is not None

    def _holds(self, name: str) -> Condition | None:
        found = self.conditions.get(name)
        return found if found is not None and found.status else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Container:
    """The state of one: `waiting`, `running` or `terminated`."""

    state: str
    reason: str = ""
    message: str = ""
    exit_code: int = 0
    finished_at: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PodSnapshot:
    """One of an attempt's pods; `rank` counts from 0."""

    key: Key
    job_id: str
    rank: int
    namespace: str
    name: str
    uid: str
    service_account: str
    node: str
    phase: str
    reason: str
    message: str
    deleting: bool
    scheduled: Condition | None
    disruption: Condition | None
    # Where the runner is; None before the kubelet has looked.
    runner: Container | None
    # Another container that is in the way.
    blocked: Container | None
    # As the pod has it: `4Gi`; empty for none.
    memory_limit: str = ""
    address: str = ""
    # How often its main container was started anew, and how that ended last.
    restarts: int = 0
    last_end: Container | None = None
    # Seconds of Unix time.
    created: float = 0.0
    # The claim of its devices, by the name that Kubernetes gave it; empty without one.
    claim: str = ""

    @property
    def ended(self) -> bool:
        """True if none of its processes is left."""
        return self.phase in ("Succeeded", "Failed")

    @property
    def has_stopped(self) -> bool:
        """True if its main container has ended and was not started anew."""
        return self.runner is not None and self.runner.state == "terminated"

    @property
    def latest_end(self) -> Container | None:
        """End that its main container had last; None without one."""
        return self.runner if self.has_stopped else self.last_end

    @property
    def has_log(self) -> bool:
        """True if its runner has started."""
        return self.runner is not None and self.runner.state != "waiting"


@dataclass(frozen=True, slots=True, kw_only=True)
class KubeEvent:
    """An event of the cluster about an object."""

    namespace: str
    kind: str
    name: str
    reason: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptSnapshot:
    """The objects of one attempt. `lost` are its unreachable nodes."""

    root: RootObject | None = None
    pods: tuple[PodSnapshot, ...] = ()
    admission: Workload | None = None
    events: tuple[KubeEvent, ...] = ()
    lost: frozenset[str] = frozenset()
    # Whether some node takes nothing now that may do so again: not ready, or cordoned.
    short: bool = False
    # Place among those that wait for the same quota, from 1; 0 when not known.
    position: int = 0

    @property
    def running(self) -> bool:
        """True if a process of the attempt may be running.

        Of a node that does not answer nobody can know; what comes from there is fenced off.
        """
        return any(not pod.ended and not self.is_lost(pod) for pod in self.pods)

    @property
    def alive(self) -> bool:
        """True if a process of the attempt runs or may start."""
        if self.running:
            return True
        if self.root is None or self.root.ended:
            return False
        # What is being deleted starts nothing; it may wait for ever for a lost node's pods.
        return not (self.root.deleting and any(self.is_lost(pod) for pod in self.pods))

    @property
    def concluding(self) -> bool:
        """True if its controller is already ending the remaining pods."""
        root = self.root
        return not self.lost and root is not None and (root.completed or root.failed is not None)

    def is_lost(self, pod: PodSnapshot) -> bool:
        """Returns True if a pod was lost with its node."""
        return pod.node in self.lost and pod.deleting and not pod.ended

    def pod_of(self, rank: int) -> PodSnapshot | None:
        """The pod of a rank, preferring one that is not being deleted."""
        found = sorted(
            (pod for pod in self.pods if pod.rank == rank), key=lambda pod: (pod.deleting, pod.name)
        )
        return found[0] if found else None


def trim_root(kind: str, item: Object) -> RootObject | None:
    """Returns the root object of an attempt; None for an object that lacks our labels."""
    metadata, spec = item["metadata"], item.get("spec") or {}
    key = _key(metadata)
    if key is None:
        return None
    marks = metadata["labels"]
    generation = (metadata.get("annotations") or {}).get(labels.GENERATION, "")
    return RootObject(
        kind=kind,
        key=key,
        job_id=marks.get(labels.JOB, ""),
        generation=int(generation) if generation.isdecimal() else 0,
        namespace=metadata["namespace"],
        name=metadata["name"],
        uid=metadata["uid"],
        queue=marks.get(labels.QUEUE, ""),
        deleting="deletionTimestamp" in metadata,
        suspended=bool(spec.get("suspend")),
        conditions=_conditions(item.get("status") or {}),
    )


def trim_pod(item: Object) -> PodSnapshot | None:
    """Returns the snapshot of a job's pod; None for a pod that lacks our labels."""
    key = _key(item["metadata"])
    return pod_snapshot(item, key, CONTAINER) if key is not None else None


def pod_snapshot(item: Object, key: Key, main: str) -> PodSnapshot:
    """Returns the snapshot of a pod, whose container `main` is the one that counts."""
    metadata, status = item["metadata"], item.get("status") or {}
    conditions = _conditions(status)
    disruption = conditions.get("DisruptionTarget")
    spec = item.get("spec") or {}
    index = metadata["labels"].get(labels.LWS_INDEX, "0")
    rank = (metadata.get("annotations") or {}).get(labels.COMPLETION_INDEX, index)
    return PodSnapshot(
        key=key,
        job_id=metadata["labels"].get(labels.JOB, ""),
        rank=int(rank) if rank.isdecimal() else 0,
        namespace=metadata["namespace"],
        name=metadata["name"],
        uid=metadata["uid"],
        service_account=spec.get("serviceAccountName", ""),
        node=spec.get("nodeName", ""),
        phase=status.get("phase", "Pending"),
        reason=status.get("reason", ""),
        message=status.get("message", "")[:_LONGEST],
        deleting="deletionTimestamp" in metadata,
        scheduled=conditions.get("PodScheduled"),
        disruption=disruption if disruption is not None and disruption.status else None,
        runner=_container(found) if (found := _main(status, main)) else None,
        blocked=_blocked(status, main),
        memory_limit=_memory_limit(spec, main),
        address=status.get("podIP", ""),
        restarts=found.get("restartCount", 0) if found else 0,
        last_end=_container({"state": found.get("lastState")}) if found else None,
        created=_seconds(metadata.get("creationTimestamp")),
        claim=_claim(status),
    )


def _claim(status: Object) -> str:
    found = status.get("resourceClaimStatuses") or ()
    named = (one.get("resourceClaimName") for one in found if one["name"] == CLAIM)
    return next(named, None) or ""


def trim_event(item: Object) -> KubeEvent | None:
    """Returns the event as attempts show it; None for an event that says nothing new."""
    about = item.get("involvedObject") or {}
    if item.get("reason") not in _TELLING or not about.get("namespace"):
        return None
    return KubeEvent(
        namespace=about["namespace"],
        kind=about.get("kind", ""),
        name=about.get("name", ""),
        reason=item["reason"],
        message=(item.get("message") or item.get("note") or "")[:_LONGEST],
    )


def _key(metadata: Object) -> Key | None:
    marks = metadata.get("labels") or {}
    workload, attempt = marks.get(labels.WORKLOAD, ""), marks.get(labels.ATTEMPT, "")
    return Key(workload, int(attempt)) if workload and attempt.isdecimal() else None


def _conditions(status: Object) -> dict[str, Condition]:
    return {
        one["type"]: Condition(
            status=one["status"] == "True",
            reason=one.get("reason") or "",
            message=(one.get("message") or "")[:_LONGEST],
            at=one.get("lastTransitionTime") or "",
        )
        for one in status.get("conditions") or ()
    }


def _seconds(timestamp: str | None) -> float:
    return datetime.fromisoformat(timestamp).timestamp() if timestamp else 0.0


def _memory_limit(spec: Object, main: str) -> str:
    for one in (*(spec.get("containers") or ()), *(spec.get("initContainers") or ())):
        if one["name"] == main:
            limits = (one.get("resources") or {}).get("limits") or {}
            return str(limits.get("memory", ""))
    return ""


def _main(status: Object, main: str) -> Object | None:
    every = (status.get("containerStatuses") or (), status.get("initContainerStatuses") or ())
    return next((one for one in chain(*every) if one["name"] == main), None)


def _blocked(status: Object, main: str) -> Container | None:
    """The first container beside the main one that waits or failed."""
    for one in _others(status, main):
        found = _container(one)
        if found is None or found.state == "running":
            continue
        if found.state == "waiting" or found.exit_code:
            return found
    return None


def _others(status: Object, main: str) -> Iterable[Object]:
    yield from status.get("initContainerStatuses") or ()
    for one in status.get("containerStatuses") or ():
        if one["name"] != main:
            yield one


def _container(status: Object) -> Container | None:
    for state, found in (status.get("state") or {}).items():
        return Container(
            state=state,
            reason=found.get("reason") or "",
            # The kubelet cuts a termination message at 4 KiB.
            message=found.get("message") or "",
            exit_code=found.get("exitCode") or 0,
            finished_at=found.get("finishedAt") or "",
        )
    return None
