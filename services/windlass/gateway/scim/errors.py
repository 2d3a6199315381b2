"""Errors in SCIM's shape (RFC 7644, 3.12)."""

import re
from typing import Any

import grpc
import orjson

from windlass.core.errors import REASON_KEY, AppError, from_rpc
from windlass.gateway.errors import HttpError, to_http

PREFIX = "/scim/v2"
MEDIA_TYPE = "application/scim+json"
_SCHEMA = "urn:ietf:params:scim:api:messages:2.0:Error"
_TYPES = {
    grpc.StatusCode.INVALID_ARGUMENT: "invalidValue",
    grpc.StatusCode.ALREADY_EXISTS: "uniqueness",
}
_OF_PARAMS = {"filter": "invalidFilter", "sort_by": "invalidPath"}


class ScimError(HttpError):
    """An error of SCIM: status, detail and, for some, a type."""

    media_type = MEDIA_TYPE

    def __init__(self, status: int, detail: str, scim_type: str | None = None):
        super().__init__(status, detail)
        self.scim_type = scim_type

    @property
    def content(self) -> dict[str, Any]:
        """The error as a message of SCIM."""
        detail = self.message.encode("utf-8", "replace").decode()
        fields = {"schemas": [_SCHEMA], "status": str(self.status), "detail": detail}
        return fields | ({"scimType": self.scim_type} if self.scim_type else {})

    def body(self) -> bytes:
        """The same, encoded."""
        return orjson.dumps(self.content)


def is_scim(path: str) -> bool:
    """Returns True for a path of SCIM."""
    return path.startswith(PREFIX + "/") or path == PREFIX


def scim_error(error: BaseException) -> ScimError:
    """The error of SCIM for any exception."""
    if isinstance(error, ScimError):
        return error
    if isinstance(error, grpc.aio.AioRpcError) and _is_ours(error):
        error = from_rpc(error)
    found = to_http(error)
    answer = ScimError(found.status, found.message)
    answer.headers = found.headers
    if isinstance(error, AppError):
        answer.scim_type = _OF_PARAMS.get(error.param or "", _TYPES.get(error.code))
        if error.reason == "version_mismatch":
            answer.status = 412
        if error.param:
            # As the client calls it.
            answer.message = found.message.replace(error.param, _camel(error.param))
    return answer


def _is_ours(error: grpc.aio.AioRpcError) -> bool:
    return any(key == REASON_KEY for key, _ in error.trailing_metadata() or ())


def _camel(name: str) -> str:
    return re.sub(r"_([a-z])", lambda found: found[1].upper(), name)
