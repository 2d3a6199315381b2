"""The mapping of every error to an HTTP status and OpenAI's error object."""

from collections.abc import Mapping

import grpc
import orjson

from windlass.core import telemetry
from windlass.core.errors import REASON_KEY, AppError, from_rpc
from windlass.core.objects import ObjectStoreError, ObjectTooLarge, StorageFull

log = telemetry.logger("gateway")
AWAY = "A part of the service is not responding; try again."

# (HTTP status, OpenAI's error type)
_STATUS: dict[grpc.StatusCode, tuple[int, str]] = {
    grpc.StatusCode.INVALID_ARGUMENT: (400, "invalid_request_error"),
    grpc.StatusCode.OUT_OF_RANGE: (400, "invalid_request_error"),
    grpc.StatusCode.UNAUTHENTICATED: (401, "authentication_error"),
    grpc.StatusCode.PERMISSION_DENIED: (403, "permission_error"),
    grpc.StatusCode.NOT_FOUND: (404, "invalid_request_error"),
    grpc.StatusCode.ALREADY_EXISTS: (409, "conflict_error"),
    grpc.StatusCode.ABORTED: (409, "conflict_error"),
    grpc.StatusCode.FAILED_PRECONDITION: (409, "conflict_error"),
    grpc.StatusCode.RESOURCE_EXHAUSTED: (429, "rate_limit_error"),
    grpc.StatusCode.UNAVAILABLE: (503, "service_unavailable_error"),
    grpc.StatusCode.DEADLINE_EXCEEDED: (504, "timeout_error"),
}
# A conflict that lasts: openai-python would otherwise try a 409 again.
_PERMANENT = (grpc.StatusCode.ALREADY_EXISTS, grpc.StatusCode.FAILED_PRECONDITION)


class HttpError(Exception):
    """An error response: status, message, type, param and code."""

    media_type = "application/json"

    def __init__(
        self,
        status: int,
        message: str,
        *,
        kind: str = "invalid_request_error",
        code: str | None = None,
        param: str | None = None,
        headers: Mapping[str, str] | None = None,
        rest_seconds: float = 0.0,
    ):
        super().__init__(message)
        self.status = status
        self.message = message
        self.kind = kind
        self.code = code
        self.param = param
        self.headers = dict(headers or {})
        # For how long the connection is read no further after the answer.
        self.rest_seconds = rest_seconds

    def body(self) -> bytes:
        """OpenAI's error object, JSON."""
        return error_body(self.message, kind=self.kind, code=self.code, param=self.param)


def error_body(message: str, *, kind: str, code: str | None, param: str | None = None) -> bytes:
    """`{"error": {message, type, param, code}}`, all four always there."""
    fields = {
        "message": _text(message),
        "type": kind,
        "param": param and _text(param),
        "code": code,
    }
    return orjson.dumps({"error": fields})


def _text(value: str) -> str:
    """Text that can be encoded; a JSON body may name a field by half a surrogate pair."""
    return value.encode("utf-8", "replace").decode()


def to_http(error: BaseException) -> HttpError:
    """The HTTP error for any exception; an unexpected one is logged here."""
    if isinstance(error, HttpError):
        return error
    if isinstance(error, grpc.aio.AioRpcError):
        return _from_rpc(error)
    if isinstance(error, AppError):
        return _from_app(error)
    if isinstance(error, ObjectStoreError):
        return _from_store(error)
    if isinstance(error, RecursionError):
        return HttpError(400, "The body is nested too deeply.", code="invalid_json")
    log.error("unexpected_error", exc_info=error)
    return _internal()


def _from_rpc(error: grpc.aio.AioRpcError) -> HttpError:
    reasons = [key for key, _ in error.trailing_metadata() or ()]
    if REASON_KEY in reasons:
        return _from_app(from_rpc(error))
    # Of gRPC's own making: its details name addresses and are not for callers.
    log.warning("rpc_failed", code=error.code().name, details=error.details())
    if error.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.RESOURCE_EXHAUSTED):
        return HttpError(503, AWAY, kind="service_unavailable_error", code="service_unavailable")
    if error.code() == grpc.StatusCode.DEADLINE_EXCEEDED:
        return HttpError(504, AWAY, kind="timeout_error", code="timeout")
    return _internal()


def _from_app(error: AppError) -> HttpError:
    if error.reason in ("invalid_token", "missing_token"):
        # A peer refused our own token: not the caller's fault.
        log.error("gateway_token_refused", reason=error.reason)
        return _internal()
    if error.code not in _STATUS:
        return HttpError(500, error.message or "Internal error.", kind="server_error", code=None)
    status, kind = _STATUS[error.code]
    headers = {}
    if error.code in _PERMANENT:
        headers["x-should-retry"] = "false"
    elif status == 429:
        headers["retry-after"] = "1"
    return HttpError(
        status, error.message, kind=kind, code=error.reason, param=error.param, headers=headers
    )


def _from_store(error: ObjectStoreError) -> HttpError:
    if isinstance(error, ObjectTooLarge):
        return HttpError(413, "The file is too large.", code="request_too_large", param="file")
    log.error("object_store_failed", error=str(error))
    if isinstance(error, StorageFull):
        return HttpError(
            507, "The server's storage is full.", kind="server_error", code="storage_full"
        )
    return HttpError(503, AWAY, kind="service_unavailable_error", code="storage_unavailable")


def _internal() -> HttpError:
    identifier = telemetry.request_id.get()
    return HttpError(
        500,
        f"Something went wrong on our side (request {identifier}).",
        kind="server_error",
        code="internal",
    )


def not_found(method: str, path: str) -> HttpError:
    """The answer to a path that does not exist."""
    return HttpError(404, f"Unknown request URL: {method} {path}.", code="unknown_url")


def method_not_allowed(method: str, path: str, allow: str) -> HttpError:
    """The answer to a path that exists for other methods."""
    message = f"Method {method} is not allowed for {path}."
    return HttpError(405, message, code="method_not_allowed", headers={"allow": allow})


def too_large(limit: int) -> HttpError:
    """The answer to a body beyond its bound."""
    return HttpError(413, f"The body exceeds {limit} bytes.", code="request_too_large")
