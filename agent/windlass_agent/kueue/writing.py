"""Kueue's objects out of the contract's messages, for server-side apply."""

from collections.abc import Iterable, Mapping
from typing import Any

from windlass.api.clusters.v1 import clusters_pb2 as pb
from windlass.kubernetes.quantities import text_of
from windlass_agent.kube.resources import (
    CLUSTERQUEUES,
    COHORTS,
    LOCALQUEUES,
    RESOURCEFLAVORS,
    WORKLOADPRIORITYCLASSES,
    Resource,
)

Object = dict[str, Any]
Labels = Mapping[str, str]
_NONE: Labels = {}


def cluster_queue(queue: pb.ClusterQueue, *, labels: Labels = _NONE) -> Object:
    """Open to LocalQueues of every namespace; who may make one is for RBAC to say."""
    spec: Object = {"namespaceSelector": {}, "resourceGroups": resource_groups(queue.quotas)}
    if queue.cohort:
        spec["cohortName"] = queue.cohort
    preemption = {
        "reclaimWithinCohort": queue.reclaim_within_cohort,
        "withinClusterQueue": queue.within_cluster_queue,
    }
    if any(preemption.values()):
        spec["preemption"] = {name: value for name, value in preemption.items() if value}
    spec |= _fair_sharing(queue.fair_weight_millis)
    return _object(CLUSTERQUEUES, queue.name, labels) | {"spec": spec}


def cohort(group: pb.Cohort, *, labels: Labels = _NONE) -> Object:
    """Returns a cohort, with the quota of its own that all below it may use."""
    spec: Object = _fair_sharing(group.fair_weight_millis)
    if group.parent:
        spec["parentName"] = group.parent
    if group.quotas:
        spec["resourceGroups"] = resource_groups(group.quotas)
    return _object(COHORTS, group.name, labels) | {"spec": spec}


def flavor(kind: pb.ResourceFlavor, *, labels: Labels = _NONE) -> Object:
    """Kueue gives its node labels and tolerations to the pods that it admits."""
    spec: Object = {}
    if kind.node_labels:
        spec["nodeLabels"] = dict(sorted(kind.node_labels.items()))
    if kind.tolerations:
        spec["tolerations"] = [_toleration(one) for one in kind.tolerations]
    return _object(RESOURCEFLAVORS, kind.name, labels) | {"spec": spec}


def local_queue(queue: pb.LocalQueue, *, labels: Labels = _NONE) -> Object:
    """A namespace's door to a ClusterQueue."""
    made = _object(LOCALQUEUES, queue.name, labels, namespace=queue.namespace)
    return made | {"spec": {"clusterQueue": queue.cluster_queue}}


def priority_class(kind: pb.PriorityClass, *, labels: Labels = _NONE) -> Object:
    """The priority class of jobs."""
    return _object(WORKLOADPRIORITYCLASSES, kind.name, labels) | {"value": kind.value}


def resource_groups(quotas: Iterable[pb.ResourceQuota]) -> list[Object]:
    """Kueue's shape of quotas: resources that share a flavor stand in one group.

    Each flavor of a group needs all its resources, in the same order: 0 of those not named.
    """
    groups: list[tuple[list[str], dict[str, dict[str, pb.ResourceQuota]]]] = []
    for quota in quotas:
        met = [group for group in groups if quota.resource in group[0] or quota.flavor in group[1]]
        resources, flavors = _joined(met)
        if quota.resource not in resources:
            resources.append(quota.resource)
        flavors.setdefault(quota.flavor, {})[quota.resource] = quota
        groups = [group for group in groups if group not in met] + [(resources, flavors)]
    return [
        {
            "coveredResources": resources,
            "flavors": [
                {
                    "name": name,
                    "resources": [_quota(resource, given.get(resource)) for resource in resources],
                }
                for name, given in flavors.items()
            ],
        }
        for resources, flavors in groups
    ]


def _joined(
    groups: list[tuple[list[str], dict[str, dict[str, pb.ResourceQuota]]]],
) -> tuple[list[str], dict[str, dict[str, pb.ResourceQuota]]]:
    resources: list[str] = []
    flavors: dict[str, dict[str, pb.ResourceQuota]] = {}
    for of_group, flavors_of_group in groups:
        resources += of_group
        flavors |= flavors_of_group
    return resources, flavors


def _quota(resource: str, quota: pb.ResourceQuota | None) -> Object:
    if quota is None:
        return {"name": resource, "nominalQuota": "0"}
    found = {"name": resource, "nominalQuota": text_of(resource, quota.nominal)}
    if quota.HasField("borrowing_limit"):
        found["borrowingLimit"] = text_of(resource, quota.borrowing_limit)
    if quota.HasField("lending_limit"):
        found["lendingLimit"] = text_of(resource, quota.lending_limit)
    return found


def _fair_sharing(weight_millis: int) -> Object:
    if not weight_millis:
        return {}
    return {"fairSharing": {"weight": text_of("cpu", weight_millis)}}


def _toleration(one: pb.Toleration) -> Object:
    fields = {"key": one.key, "operator": one.operator, "value": one.value, "effect": one.effect}
    return {name: value for name, value in fields.items() if value}


def _object(kind: Resource, name: str, labels: Labels, *, namespace: str = "") -> Object:
    metadata: Object = {"name": name}
    if namespace:
        metadata["namespace"] = namespace
    if labels:
        metadata["labels"] = dict(labels)
    return {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata}
