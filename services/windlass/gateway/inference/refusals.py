"""Conversion of an engine's error to OpenAI's error object, with the engine's message."""

from typing import Any

import orjson

from windlass.gateway.errors import HttpError

MESSAGE_LENGTH = 2000


def engine_error(status: int, body: bytes) -> HttpError:
    """The error to raise for an engine's response of `status` 400 or more."""
    if status in (401, 403):
        # Between us and the engine: nothing that the caller could mend.
        return HttpError(502, "The engine refused the gateway.", kind="server_error", code=None)
    kind = "invalid_request_error" if status < 500 else "server_error"
    fields = _fields(body)
    code = fields.get("code")
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
