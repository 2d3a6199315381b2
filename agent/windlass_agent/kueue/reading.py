"""Kueue's objects as the contract has them: queues, flavors, cohorts, priority classes."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from windlass.api.clusters.v1 import clusters_pb2 as pb
from windlass.kubernetes.quantities import amount, millis

LONGEST_MESSAGE = 1000
Object = Mapping[str, Any]


def cluster_queue(item: Object) -> pb.ClusterQueue:
    """Returns its quotas, what admitted workloads reserve of them, and whether it is active."""
    spec, status = item["spec"], item.get("status") or {}
    preemption = spec.get("preemption") or {}
    active, message = _activity(status)
    used = _reserved(status)
    return pb.ClusterQueue(
        name=item["metadata"]["name"],
        cohort=spec.get("cohortName", ""),
        quotas=list(_quotas(spec, used)),
        fair_weight_millis=_weight(spec),
        reclaim_within_cohort=preemption.get("reclaimWithinCohort", ""),
        within_cluster_queue=preemption.get("withinClusterQueue", ""),
        pending=status.get("pendingWorkloads", 0),
        admitted=status.get("admittedWorkloads", 0),
        active=active,
        message=message,
    )


def local_queue(item: Object) -> pb.LocalQueue:
    """The ClusterQueue of a LocalQueue, and its state."""
    status = item.get("status") or {}
    active, message = _activity(status)
    return pb.LocalQueue(
        namespace=item["metadata"]["namespace"],
        name=item["metadata"]["name"],
        cluster_queue=item["spec"].get("clusterQueue", ""),
        pending=status.get("pendingWorkloads", 0),
        admitted=status.get("admittedWorkloads", 0),
        active=active,
        message=message,
    )


def flavor(item: Object) -> pb.ResourceFlavor:
    """The nodes of a flavor, and what pods must tolerate there."""
    spec = item.get("spec") or {}
    return pb.ResourceFlavor(
        name=item["metadata"]["name"],
        node_labels=spec.get("nodeLabels") or {},
        tolerations=[
            pb.Toleration(
                key=one.get("key", ""),
                operator=one.get("operator", ""),
                value=one.get("value", ""),
                effect=one.get("effect", ""),
            )
            for one in spec.get("tolerations") or ()
        ],
    )


def cohort(item: Object) -> pb.Cohort:
    """Returns its parent, and the quotas of its own."""
    spec = item.get("spec") or {}
    return pb.Cohort(
        name=item["metadata"]["name"],
        parent=spec.get("parentName", ""),
        fair_weight_millis=_weight(spec),
        quotas=list(_quotas(spec, {})),
    )


def priority_class(item: Object) -> pb.PriorityClass:
    """A WorkloadPriorityClass."""
    return pb.PriorityClass(name=item["metadata"]["name"], value=item.get("value", 0))


def _quotas(
    spec: Object, used: Mapping[tuple[str, str], tuple[int, int]]
) -> Iterator[pb.ResourceQuota]:
    for group in spec.get("resourceGroups") or ():
        for flavor_ in group.get("flavors") or ():
            for resource in flavor_.get("resources") or ():
                total, borrowed = used.get((flavor_["name"], resource["name"]), (0, 0))
                yield pb.ResourceQuota(
                    flavor=flavor_["name"],
                    resource=resource["name"],
                    nominal=amount(resource["name"], resource.get("nominalQuota")),
                    borrowing_limit=_limit(resource, "borrowingLimit"),
                    lending_limit=_limit(resource, "lendingLimit"),
                    used=total,
                    borrowed=borrowed,
                )


def _limit(resource: Object, name: str) -> int | None:
    value = resource.get(name)
    return None if value is None else amount(resource["name"], value)


def _reserved(status: Object) -> dict[tuple[str, str], tuple[int, int]]:
    """(total, borrowed of that) by flavor and resource."""
    return {
        (flavor_["name"], one["name"]): (
            amount(one["name"], one.get("total")),
            amount(one["name"], one.get("borrowed")),
        )
        for flavor_ in status.get("flavorsReservation") or ()
        for one in flavor_.get("resources") or ()
    }


def _weight(spec: Object) -> int:
    return millis((spec.get("fairSharing") or {}).get("weight"))


def _activity(status: Object) -> tuple[bool, str]:
    """Returns True if a queue admits, and else why not."""
    conditions: Iterable[Object] = status.get("conditions") or ()
    for condition in conditions:
        if condition["type"] == "Active":
            active = condition["status"] == "True"
            return active, "" if active else condition.get("message", "")[:LONGEST_MESSAGE]
    return False, ""
