"""Errors in the shape that the tinker SDK reads; their statuses tell it whether to try again."""

from typing import Any

import grpc
import orjson

from windlass.core.errors import REASON_KEY, AppError, from_rpc
from windlass.gateway.errors import HttpError, to_http

PREFIX = "/api/v1/"
GONE = 410
# What is over for good; a 409 would be asked again for minutes.
_GONE = frozenset({
    "session_finished", "run_deleted", "run_is_copy", "result_expired", "checkpoint_damaged",
    "log_gone",
})  # fmt: skip
_USER_BELOW = 500


class TinkerError(HttpError):
    """An error with its category: the client's, or the server's."""

    @property
    def content(self) -> dict[str, Any]:
        """The error as the SDK shows it."""
        category = "user" if self.status < _USER_BELOW else "server"
        message = self.message.encode("utf-8", "replace").decode()
        return {"error": message, "category": category, "code": self.code, "param": self.param}

    def body(self) -> bytes:
        """The same, encoded."""
        return orjson.dumps(self.content)


def is_tinker(path: str) -> bool:
    """Returns True for a path of the tinker SDK."""
    return path.startswith(PREFIX)


def tinker_error(error: BaseException) -> TinkerError:
    """The SDK's error for any exception."""
    if isinstance(error, TinkerError):
        return error
    if isinstance(error, grpc.aio.AioRpcError) and _is_ours(error):
        error = from_rpc(error)
    found = to_http(error)
    answer = TinkerError(found.status, found.message, code=found.code, param=found.param)
    answer.headers, answer.rest_seconds = found.headers, found.rest_seconds
    if isinstance(error, AppError) and error.reason in _GONE:
        answer.status = GONE
    return answer


def not_served(name: str) -> TinkerError:
    """The answer to what the SDK can ask and this server does not do.

    A 501 would be asked again for minutes.
    """
    return TinkerError(404, f"{name} is not served here.", code="not_served")


def _is_ours(error: grpc.aio.AioRpcError) -> bool:
    return REASON_KEY in [key for key, _ in error.trailing_metadata() or ()]
