"""Errors of the Kubernetes API, and of requests that cannot be sent to it."""

from collections.abc import Mapping
from typing import Any

import msgspec

Object = dict[str, Any]


class KubeError(Exception):
    """An answer that is not success.

    `status` is the HTTP status, 0 where there was no answer; `reason` is Kubernetes' own word
    (`AlreadyExists`, `FieldManagerConflict`), `message` its sentence.
    """

    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(f"{reason or status}: {message}")
        self.status = status
        self.reason = reason
        self.message = message


class ResourceNotFound(KubeError):
    """No such object, or no such kind of object."""


class Conflict(KubeError):
    """A conflict: it exists already, changed meanwhile, or another manager owns a field."""


class Forbidden(KubeError):
    """A refusal by RBAC, by an admission policy or by a ResourceQuota."""


class Unauthorized(KubeError):
    """The credential is not known."""


class Expired(KubeError):
    """The version to go on from is compacted; list anew."""


class Invalid(KubeError):
    """The object is not valid; repeating it cannot help."""


class ApiServerUnavailable(KubeError):
    """No answer, or one that says to come back later; repeating it may help."""


class Unrenderable(Exception):
    """No objects can be made of a workload: a word, and a sentence for its owner."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message


_BY_STATUS: Mapping[int, type[KubeError]] = {
    400: Invalid,
    401: Unauthorized,
    403: Forbidden,
    404: ResourceNotFound,
    409: Conflict,
    410: Expired,
    422: Invalid,
    429: ApiServerUnavailable,
}
# Server-side apply answers a field that it does not know, or a value that does not fit, with a
# bare 500.
_NO_FIT = ("failed to create typed patch object", "failed to convert new object")


def error_of(status: int, body: Object) -> KubeError:
    """The error that a `Status` object, or a bare HTTP status, stands for."""
    kind = _BY_STATUS.get(status, ApiServerUnavailable if status >= 500 else KubeError)
    reason, message = str(body.get("reason") or ""), str(body.get("message") or "")
    if message.startswith(_NO_FIT):
        kind = Invalid
    return kind(status, reason, message or f"HTTP {status}")


def error_of_answer(status: int, content: bytes) -> KubeError:
    """The error in an answer, which a proxy may have written."""
    try:
        body = msgspec.json.decode(content)
    except msgspec.DecodeError:
        body = None
    if not isinstance(body, dict):
        body = {"message": content[:500].decode(errors="replace").strip()}
    return error_of(status, body)
