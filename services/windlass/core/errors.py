"""The errors that cross a service boundary, and their gRPC status.

Code raises an `AppError`; the server's interceptor turns it into a gRPC status,
`from_rpc` turns that status back at the caller, and the gateway renders it in
OpenAI's shape. `reason` is stable and machine-readable; `message` is for people.
"""

import re
from collections.abc import Iterable

import grpc

REASON_KEY = "windlass-reason"
PARAM_KEY = "windlass-param"
# Both may repeat what a caller sent, and travel in trailers, of which a peer takes 8 KiB:
# a character of a message may need 12 bytes there, and metadata is printable ASCII.
MESSAGE_LENGTH = 600
PARAM_LENGTH = 200
_NOT_METADATA = re.compile(r"[^ -~]")


class AppError(Exception):
    """An error that is reported to the caller, with a stable reason."""

    code: grpc.StatusCode = grpc.StatusCode.INTERNAL
    default_reason = "internal"

    def __init__(self, message: str, *, reason: str | None = None, param: str | None = None):
        if len(message) > MESSAGE_LENGTH:
            message = message[: MESSAGE_LENGTH - 1] + "…"
        super().__init__(message)
        self.message = message
        self.reason = reason or self.default_reason
        self.param = _NOT_METADATA.sub("?", param)[:PARAM_LENGTH] if param else None


class InvalidArgument(AppError):
    """The request itself is wrong; `param` names the field."""

    code = grpc.StatusCode.INVALID_ARGUMENT
    default_reason = "invalid_value"


class Unauthenticated(AppError):
    """No credential, or one that is not accepted."""

    code = grpc.StatusCode.UNAUTHENTICATED
    default_reason = "invalid_api_key"


class PermissionDenied(AppError):
    """The caller is known but lacks the permission."""

    code = grpc.StatusCode.PERMISSION_DENIED
    default_reason = "insufficient_permissions"


class NotFound(AppError):
    """The resource does not exist within the caller's tenant."""

    code = grpc.StatusCode.NOT_FOUND
    default_reason = "not_found"


class AlreadyExists(AppError):
    """The name is taken."""

    code = grpc.StatusCode.ALREADY_EXISTS
    default_reason = "already_exists"


class FailedPrecondition(AppError):
    """The thing is not in a state that allows this; asking again does not help."""

    code = grpc.StatusCode.FAILED_PRECONDITION
    default_reason = "conflict"


class ResourceExhausted(AppError):
    """A limit is reached; a later retry may succeed."""

    code = grpc.StatusCode.RESOURCE_EXHAUSTED
    default_reason = "rate_limit_exceeded"


class Unavailable(AppError):
    """A dependency is not responding; a retry may succeed."""

    code = grpc.StatusCode.UNAVAILABLE
    default_reason = "service_unavailable"


class DeadlineExceeded(AppError):
    """The call took longer than its caller was willing to wait."""

    code = grpc.StatusCode.DEADLINE_EXCEEDED
    default_reason = "timeout"


class Internal(AppError):
    """An unexpected error; the log has it under the request's id."""


_FAMILY: dict[grpc.StatusCode, type[AppError]] = {
    kind.code: kind
    for kind in (
        InvalidArgument, Unauthenticated, PermissionDenied, NotFound, AlreadyExists,
        FailedPrecondition, ResourceExhausted, Unavailable, DeadlineExceeded, Internal,
    )
}  # fmt: skip


def to_metadata(error: AppError) -> tuple[tuple[str, str], ...]:
    """The trailing metadata that carries reason and parameter of an error."""
    pairs = [(REASON_KEY, error.reason)]
    if error.param:
        pairs.append((PARAM_KEY, error.param))
    return tuple(pairs)


def from_rpc(error: grpc.aio.AioRpcError) -> AppError:
    """The AppError that a peer raised, or the nearest one for a transport failure."""
    trailing: Iterable[tuple[str, str | bytes]] = error.trailing_metadata() or ()
    pairs = {key: value for key, value in trailing if isinstance(value, str)}
    kind = _FAMILY.get(error.code(), Internal)
    return kind(error.details() or "", reason=pairs.get(REASON_KEY), param=pairs.get(PARAM_KEY))
