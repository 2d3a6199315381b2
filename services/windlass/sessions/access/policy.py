"""Policy of tenants' requests to a cluster's API server, on one page; pure.

Deny by default. Within the project's own namespace: read what its jobs are made of and how
they wait, and enter the pods of its jobs. Beside that, discovery, which says nothing of anybody.
"""

from dataclasses import dataclass

from windlass.api.sessions.v1.sessions_pb2 import (
    ACCESS_LEVEL_EDITOR,
    ACCESS_LEVEL_VIEWER,
    AccessLevel,
)
from windlass.kubernetes.names import ENGINE_PREFIX
from windlass.sessions.access.kube_request import KubeRequest

READ, WRITE = "sessions.read", "sessions.write"
_READ_VERBS = frozenset({"get", "list", "watch"})
# (group, resource): subresources that may be read.
_READABLE: dict[tuple[str, str], frozenset[str]] = {
    ("", "pods"): frozenset({"", "status", "log"}),
    ("", "events"): frozenset({""}),
    ("events.k8s.io", "events"): frozenset({""}),
    ("apps", "deployments"): frozenset({"", "status"}),
    ("leaderworkerset.x-k8s.io", "leaderworkersets"): frozenset({"", "status"}),
    ("batch", "jobs"): frozenset({"", "status"}),
    ("jobset.x-k8s.io", "jobsets"): frozenset({"", "status"}),
    ("trainer.kubeflow.org", "trainjobs"): frozenset({"", "status"}),
    ("kueue.x-k8s.io", "workloads"): frozenset({"", "status"}),
    ("kueue.x-k8s.io", "localqueues"): frozenset({"", "status"}),
    ("visibility.kueue.x-k8s.io", "localqueues"): frozenset({"pendingworkloads"}),
}
# Parts of an engine's pod that may be read; not its log.
_OF_ENGINES = frozenset({"", "status"})
# To enter a pod is to change it, whichever method the client uses for the upgrade.
_ENTRANCES = frozenset({"exec", "attach", "portforward"})
_DISCOVERY = ("/api", "/apis", "/version", "/openapi/v2", "/openapi/v3")
PROTOCOLS = frozenset({"websocket", "spdy/3.1"})


@dataclass(frozen=True, slots=True)
class AccessAllowed:
    """Permission that the caller needs, and the namespace account that performs the request."""

    permission: str
    level: "AccessLevel.ValueType"


@dataclass(frozen=True, slots=True)
class AccessDenied:
    """Refusal with its reason in a sentence."""

    reason: str


def decide(
    request: KubeRequest, namespace: str, *, upgrade: str = ""
) -> AccessAllowed | AccessDenied:
    """Returns True if a project with this namespace may make the request, given the permission."""
    if not request.is_resource:
        return _discovery(request, upgrade)
    if request.namespace != namespace:
        where = f"in {request.namespace}" if request.namespace else "beyond it"
        return AccessDenied(
            f"your project has the namespace {namespace}, and no access to anything {where}"
        )
    if request.goes_on:
        return AccessDenied(f"{request.kind} is not supported")
    if _is_engine(request) and request.subresource not in _OF_ENGINES:
        return AccessDenied("engines also serve requests of others than this namespace's")
    if _enters(request):
        # The API server answers 400 to one that does not ask for an upgrade.
        if upgrade and upgrade not in PROTOCOLS:
            return AccessDenied(f"connections cannot be upgraded to {upgrade[:40]}")
        return AccessAllowed(WRITE, ACCESS_LEVEL_EDITOR)
    if upgrade:
        return AccessDenied(f"{request.kind} does not support upgraded connections")
    readable = _READABLE.get((request.api_group, request.resource), frozenset())
    if request.verb in _READ_VERBS and request.subresource in readable:
        return AccessAllowed(READ, ACCESS_LEVEL_VIEWER)
    return AccessDenied("Windlass does not allow this resource")


def verb_of(request: KubeRequest) -> str:
    """The verb to authorize and audit: exec into a pod is `create`, whatever the method."""
    return "create" if _enters(request) else request.verb


def _enters(request: KubeRequest) -> bool:
    return (
        (request.api_group, request.resource) == ("", "pods")
        and request.subresource in _ENTRANCES
        and request.verb in ("get", "create")
        and bool(request.name)
    )


def _is_engine(request: KubeRequest) -> bool:
    return request.resource == "pods" and request.name.startswith(ENGINE_PREFIX)


def _discovery(request: KubeRequest, upgrade: str) -> AccessAllowed | AccessDenied:
    path = request.path.rstrip("/")
    known = any(path == one or path.startswith(f"{one}/") for one in _DISCOVERY)
    if known and request.verb in ("get", "head") and not upgrade:
        return AccessAllowed(READ, ACCESS_LEVEL_VIEWER)
    return AccessDenied("only API discovery is allowed outside your project's namespace")
