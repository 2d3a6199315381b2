"""Kueue's Workload: what it decided about a job, and why."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from windlass.kubernetes.labels import JOB_UID

Object = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Condition:
    """The state of one aspect; `at` is when it last turned, RFC 3339."""

    status: bool
    reason: str
    message: str
    at: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """Kueue Workload without the pod templates that make up most of it.

    `flavors` tells which flavor was assigned to each resource; `owner` is the uid of the job.
    """

    namespace: str
    name: str
    uid: str
    owner: str
    queue: str
    priority: int
    priority_class: str
    active: bool
    conditions: Mapping[str, Condition]
    cluster_queue: str
    flavors: Mapping[str, str]
    requeues: int

    @classmethod
    def parse(cls, item: Object) -> Self:
        """Reads a Workload as the API returns it."""
        metadata, spec = item["metadata"], item["spec"]
        status = item.get("status") or {}
        admission = status.get("admission") or {}
        return cls(
            namespace=metadata["namespace"],
            name=metadata["name"],
            uid=metadata["uid"],
            owner=_owner(metadata),
            queue=spec.get("queueName", ""),
            priority=spec.get("priority", 0),
            priority_class=(spec.get("priorityClassRef") or {}).get("name", ""),
            active=spec.get("active", True),
            conditions={
                condition["type"]: _condition(condition)
                for condition in status.get("conditions") or ()
            },
            cluster_queue=admission.get("clusterQueue", ""),
            flavors={
                resource: flavor
                for pods in admission.get("podSetAssignments") or ()
                for resource, flavor in (pods.get("flavors") or {}).items()
            },
            requeues=(status.get("requeueState") or {}).get("count", 0),
        )

    @property
    def quota_reserved(self) -> bool:
        """True if quota is set aside; admission checks may still be out."""
        return self._holds("QuotaReserved") is not None

    @property
    def admitted(self) -> bool:
        """True if it may run."""
        return self._holds("Admitted") is not None

    @property
    def finished(self) -> Condition | None:
        """The condition of its end: reason `Succeeded` or `Failed`."""
        return self._holds("Finished")

    @property
    def evicted(self) -> Condition | None:
        """Returns why it had to stop: `Preempted`, `Deactivated`, `ClusterQueueStopped`…"""
        return self._holds("Evicted")

    @property
    def preempted(self) -> Condition | None:
        """Preemption, with a reason such as `InClusterQueue` or `InCohortReclamation`."""
        return self._holds("Preempted")

    @property
    def waiting(self) -> Condition | None:
        """Returns why no quota is reserved: `Pending`, or `Inadmissible` until somebody acts."""
        found = self.conditions.get("QuotaReserved")
        return None if found is None or found.status else found

    def _holds(self, kind: str) -> Condition | None:
        found = self.conditions.get(kind)
        return found if found is not None and found.status else None


def _condition(condition: Object) -> Condition:
    return Condition(
        status=condition["status"] == "True",
        reason=condition.get("reason", ""),
        message=condition.get("message", ""),
        at=condition.get("lastTransitionTime", ""),
    )


def _owner(metadata: Object) -> str:
    """The object that Kueue made it for."""
    for reference in metadata.get("ownerReferences") or ():
        # Of a group of pods, its set is no controller.
        if reference.get("controller") or reference["kind"] == "LeaderWorkerSet":
            return str(reference["uid"])
    return str((metadata.get("labels") or {}).get(JOB_UID, ""))
