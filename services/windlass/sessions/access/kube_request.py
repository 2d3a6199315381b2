"""Classification of Kubernetes API requests, as the API server makes it; pure.

The rules are those of `RequestInfoFactory.NewRequestInfo` in k8s.io/apiserver, which its
authorizers judge by. Paths that a proxy and the API server could read differently (escapes,
empty or dotted segments) are refused before that.
"""

import re
from dataclasses import dataclass
from urllib.parse import parse_qs

from windlass.tunnel.http1_bodies import MalformedHttp

# Without what Go's parser drops silently: `;`, `#`, and an escape that is none.
_QUERY = re.compile(r"(?:[!\"$&-:<-~]|%[0-9A-Fa-f]{2})*")
_ONE_NAME = re.compile(r"metadata\.name==?([A-Za-z0-9.:_-]+)")
_SEGMENT = re.compile(r"[A-Za-z0-9._:~@-]{1,253}")
_VERBS = {
    "GET": "get",
    "HEAD": "get",
    "POST": "create",
    "PUT": "update",
    "PATCH": "patch",
    "DELETE": "delete",
}
# Old forms of paths, in which a verb stands before the resource.
_SPECIAL_VERBS = frozenset({"proxy", "watch"})
_NAMESPACE_SUBRESOURCES = frozenset({"status", "finalize"})


@dataclass(frozen=True, slots=True)
class KubeRequest:
    """A verb on a resource or on a non-resource path."""

    verb: str
    path: str
    is_resource: bool = False
    api_group: str = ""
    api_version: str = ""
    namespace: str = ""
    resource: str = ""
    subresource: str = ""
    name: str = ""
    # Whether the path goes on behind the subresource, as that of a proxied service does.
    goes_on: bool = False

    @property
    def kind(self) -> str:
        """`pods/log` or `workloads.kueue.x-k8s.io`, as kubectl writes it; a path for the rest."""
        if not self.is_resource:
            return self.path
        group = f".{self.api_group}" if self.api_group else ""
        return f"{self.resource}{group}" + (f"/{self.subresource}" if self.subresource else "")


def classify(method: str, target: str) -> KubeRequest:
    """The request of a method and a target such as `/api/v1/pods?watch=1`.

    Raises MalformedHttp for a path or query that has more than one reading.
    """
    path, _, query = target.partition("?")
    if not _QUERY.fullmatch(query):
        raise MalformedHttp("The query is not well-formed.")
    parts = _segments(path)
    groupless = parts[:1] == ["api"]
    fewest = 3 if groupless else 4
    if parts[:1] not in (["api"], ["apis"]) or len(parts) < fewest:
        return KubeRequest(method.lower(), path)
    group, parts = ("", parts[1:]) if groupless else (parts[1], parts[2:])
    version, parts = parts[0], parts[1:]
    verb = _VERBS.get(method, "")
    if parts[0] in _SPECIAL_VERBS:
        if len(parts) < 2:
            raise MalformedHttp("The path does not name a resource.")
        verb, parts = parts[0], parts[1:]
    namespace, parts = _namespace(parts)
    resource, name = parts[0], parts[1] if len(parts) > 1 else ""
    subresource = parts[2] if len(parts) > 2 and verb != "proxy" else ""
    goes_on = len(parts) > 3
    if not name and verb == "get":
        verb, name = _list_or_watch(query)
    elif not name and verb == "delete":
        verb = "deletecollection"
    return KubeRequest(
        verb=verb,
        path=path,
        is_resource=True,
        api_group=group,
        api_version=version,
        namespace=namespace,
        resource=resource,
        subresource=subresource,
        name=name,
        goes_on=goes_on,
    )


def _segments(path: str) -> list[str]:
    """The path's segments, without one trailing slash."""
    trimmed = path.removeprefix("/").removesuffix("/")
    parts = trimmed.split("/") if trimmed else []
    for part in parts:
        if not _SEGMENT.fullmatch(part) or part in (".", ".."):
            raise MalformedHttp("The path has a segment that is empty, dotted or escaped.")
    return parts


def _namespace(parts: list[str]) -> tuple[str, list[str]]:
    """Splits `namespaces/NAME/…` into the namespace and the rest."""
    if parts[0] != "namespaces" or len(parts) < 2:
        return "", parts
    if len(parts) > 2 and parts[2] not in _NAMESPACE_SUBRESOURCES:
        return parts[1], parts[2:]
    return parts[1], parts


def _list_or_watch(query: str) -> tuple[str, str]:
    """The verb, and the one name that a field selector picks."""
    values = parse_qs(query, keep_blank_values=True)
    # Kubernetes reads a truth so: given, and neither `false` nor `0`.
    watch = values.get("watch", ["false"])[0].lower() not in ("false", "0")
    selected = _ONE_NAME.fullmatch(values.get("fieldSelector", [""])[0])
    name = selected[1] if selected and selected[1] not in (".", "..") else ""
    return "watch" if watch else "list", name
