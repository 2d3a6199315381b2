"""Conversion of an engine's error to OpenAI's error object.

What it says of a request is for the caller; what it says of itself is for the operator's log.
"""

from typing import Any

import orjson

from windlass.core import telemetry
from windlass.gateway.errors import HttpError

MESSAGE_LENGTH = 2000
LOGGED_BYTES = 32 * 1024
# Not implemented, and overloaded: said of the request, or to be tried again.
_TOLD = (501, 503)

log = telemetry.logger("gateway.inference")


def engine_error(status: int, body: bytes) -> HttpError:
    """The error to raise for an engine's response of `status` 400 or more."""
    if status in (401, 403):
        # Between us and the engine: nothing that the caller could mend.
        return HttpError(502, "The engine refused the gateway.", kind="server_error", code=None)
    fields = _fields(body)
    code = fields.get("code")
    if status >= 500 and status not in _TOLD:
        log.error("engine_error", status=status, body=body[:LOGGED_BYTES].decode(errors="replace"))
        identifier = telemetry.request_id.get()
        return HttpError(
            status,
            f"The engine failed to answer (request {identifier}).",
            kind="server_error",
            code="engine_error",
        )
    kind = "invalid_request_error" if status < 500 else "server_error"
    return HttpError(
        status,
        _message(fields) or body.decode("utf-8", "replace")[:MESSAGE_LENGTH] or "Engine error.",
        kind=_text(fields.get("type")) or kind,
        code=_text(code) if code != status else None,
        param=_text(fields.get("param")),
    )


def _fields(body: bytes) -> dict[str, Any]:
    """OpenAI's `error` object, or the outer one that engines of other habits send."""
    try:
        document = orjson.loads(body)
    except orjson.JSONDecodeError:
        return {}
    if not isinstance(document, dict):
        return {}
    inner = document.get("error")
    if isinstance(inner, str):
        return {"message": inner}
    return inner if isinstance(inner, dict) else document


def _message(fields: dict[str, Any]) -> str:
    message = fields.get("message") or fields.get("detail") or ""
    if not isinstance(message, str):
        message = orjson.dumps(message).decode()
    return message[:MESSAGE_LENGTH]


def _text(value: object) -> str | None:
    return str(value)[:200] if isinstance(value, str | int) and value != "" else None
