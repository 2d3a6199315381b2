"""Manifests of the objects in a project's namespace."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from windlass.api.clusters.v1 import clusters_pb2 as pb
from windlass.kubernetes import names
from windlass.kubernetes.labels import CLUSTER, MANAGED_BY, PREFIX, PROJECT
from windlass_agent.executors.kubernetes.settings import ClusterSettings
from windlass_agent.kube.resources import (
    LOCALQUEUES,
    NAMESPACES,
    NETWORKPOLICIES,
    ROLEBINDINGS,
    SERVICEACCOUNTS,
    Resource,
)
from windlass_agent.kueue import writing
from windlass_agent.namespaces.network import network_policies

Object = dict[str, Any]
# A manifest and the kind it is of.
Item = tuple[Resource, Object]

VIEWER, EDITOR = "windlass-viewer", "windlass-editor"
AGENT_BINDING = "windlass-agent"
ADOPT = PREFIX + "adopt"
_ENFORCED = {
    "pod-security.kubernetes.io/enforce": "restricted",
    "pod-security.kubernetes.io/enforce-version": "latest",
    "pod-security.kubernetes.io/warn": "restricted",
    "pod-security.kubernetes.io/audit": "restricted",
}


@dataclass(frozen=True, kw_only=True)
class ManifestContext:
    """Agent settings that a namespace's manifests depend on.

    `account` is the agent's ServiceAccount in its own namespace; `roles` begins the names of
    the ClusterRoles that its chart made: `…-viewer`, `…-editor`, and `…-space`, the agent's own.
    """

    account: str = "windlass-agent"
    roles: str = "windlass-agent"
    settings: ClusterSettings

    @property
    def namespace(self) -> str:
        """The agent's own, never a project's."""
        return self.settings.agent_namespace


def labels_of(assignment: pb.Assignment) -> dict[str, str]:
    """Returns the labels of everything in a project's namespace."""
    return MANAGED_BY | marks_of(assignment)


def marks_of(assignment: pb.Assignment) -> dict[str, str]:
    """Returns whose space it is; raises BadName."""
    return {
        PROJECT: names.label_value("Project", assignment.project_id),
        CLUSTER: names.label_value("Cluster", assignment.cluster_id),
    }


def namespace(assignment: pb.Assignment, *, made: bool) -> Item:
    """The namespace, whose pods are restricted; only one that we made says that it is ours."""
    labels = labels_of(assignment) if made else marks_of(assignment)
    return NAMESPACES, _object(NAMESPACES, assignment.namespace, labels | _ENFORCED)


def released(name: str) -> Item:
    """An adopted namespace that is no project's any more; it stays restricted."""
    return NAMESPACES, _object(NAMESPACES, name, _ENFORCED)


def contents(assignment: pb.Assignment, context: ManifestContext) -> Iterator[Item]:
    """All within the namespace: first what lets the agent make the rest."""
    labels = labels_of(assignment)
    agent = (context.namespace, context.account)
    yield _binding(assignment, AGENT_BINDING, f"{context.roles}-space", agent, labels)
    for account in (context.settings.service_account, VIEWER, EDITOR):
        made = _object(SERVICEACCOUNTS, account, labels, assignment.namespace)
        # Who needs a token mounts one, for an audience and an hour.
        yield SERVICEACCOUNTS, made | {"automountServiceAccountToken": False}
    for account, role in ((VIEWER, "viewer"), (EDITOR, "editor")):
        whom = (assignment.namespace, account)
        yield _binding(assignment, account, f"{context.roles}-{role}", whom, labels)
    for policy in network_policies(assignment.namespace, context.settings, labels=labels):
        yield NETWORKPOLICIES, policy
    if assignment.local_queue:
        queue = pb.LocalQueue(
            namespace=assignment.namespace,
            name=names.dns_subdomain("LocalQueue", assignment.local_queue),
            cluster_queue=names.dns_subdomain("ClusterQueue", assignment.cluster_queue),
        )
        yield LOCALQUEUES, writing.local_queue(queue, labels=labels)


def _binding(
    assignment: pb.Assignment,
    name: str,
    role: str,
    account: tuple[str, str],
    labels: Mapping[str, str],
) -> Item:
    made = _object(ROLEBINDINGS, name, labels, assignment.namespace)
    where, who = account
    return ROLEBINDINGS, made | {
        "roleRef": {"apiGroup": ROLEBINDINGS.group, "kind": "ClusterRole", "name": role},
        "subjects": [{"kind": "ServiceAccount", "name": who, "namespace": where}],
    }


def _object(kind: Resource, name: str, labels: Mapping[str, str], namespace_: str = "") -> Object:
    metadata: Object = {"name": name, "labels": dict(labels)}
    if namespace_:
        metadata["namespace"] = namespace_
    return {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata}
