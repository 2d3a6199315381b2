"""Rules for which namespaces a project may own. Pure."""

import re
from collections.abc import Mapping
from typing import Any

from windlass.api.clusters.v1 import clusters_pb2 as pb
from windlass.kubernetes.labels import CLUSTER, MANAGED_BY, PROJECT
from windlass_agent.namespaces.manifests import ADOPT
from windlass_agent.namespaces.sentences import AssignmentRefused

Object = Mapping[str, Any]
_RESERVED = re.compile(r"(kube|openshift)-.*|.*-system|default")


def check_name(namespace: str, own: str) -> None:
    """Raises AssignmentRefused for a namespace that a project can never own."""
    if _RESERVED.fullmatch(namespace):
        raise AssignmentRefused(f"Namespace {namespace} belongs to the cluster; choose another.")
    if namespace == own:
        raise AssignmentRefused(f"Namespace {namespace} belongs to the agent; choose another.")


def made_by_us(assignment: pb.Assignment, actual: Object) -> bool:
    """Returns True if a project's namespace is one that we made, or one that its owner handed over.

    Raises AssignmentRefused for one that is not this project's.
    """
    name, labels = assignment.namespace, labels_of(actual)
    if actual["metadata"].get("deletionTimestamp"):
        raise AssignmentRefused(
            f"Namespace {name} is being deleted, and will be created again afterwards."
        )
    owner = labels.get(PROJECT)
    if owner == assignment.project_id:
        return is_made(actual)
    if owner is not None:
        raise AssignmentRefused(f"Namespace {name} belongs to project {owner}; choose another.")
    annotations = actual["metadata"].get("annotations") or {}
    if annotations.get(ADOPT) == assignment.project_id:
        return False
    raise AssignmentRefused(
        f"Namespace {name} exists and is not Windlass's. To hand it over, its owner runs: "
        f"kubectl annotate namespace {name} {ADOPT}={assignment.project_id}"
    )


def is_ours(assignment: pb.Assignment, actual: Object) -> bool:
    """Returns True if a namespace is this project's, set up by an agent of this cluster."""
    labels = labels_of(actual)
    return (
        labels.get(PROJECT) == assignment.project_id
        and labels.get(CLUSTER) == assignment.cluster_id
    )


def is_made(actual: Object) -> bool:
    """Returns True if Windlass made an object, so that it may change and delete it."""
    labels = labels_of(actual)
    return all(labels.get(name) == value for name, value in MANAGED_BY.items())


def labels_of(item: Object) -> Mapping[str, str]:
    """An object's labels."""
    found: Mapping[str, str] = item["metadata"].get("labels") or {}
    return found
