"""Conversion of an engine's error to OpenAI's error object.

What it says of a request is for the caller, in a sentence; what it says of itself, and what its
libraries say, is for the operator's log.
"""

import re
from typing import Any

import orjson

from windlass.core import telemetry
from windlass.gateway.errors import HttpError

MESSAGE_LENGTH = 2000
LOGGED_BYTES = 32 * 1024
# Not implemented, and overloaded: said of the request, or to be tried again.
_TOLD = (501, 503)
_KINDS = {429: "rate_limit_error", 503: "service_unavailable_error"}
# Of OpenAI's error object, as the built-in engine writes it.
_OURS = {"message", "type", "param", "code"}
# OpenAI's types; others are names of an engine's classes, such as `BadRequestError`.
_KIND = re.compile(r"[a-z]+(_[a-z]+)*")
# Where FastAPI found the field.
_PLACE = re.compile(r"^(body|query|path)\.")
# What Pydantic puts between fields: classes of a union and its own types, as in `list[Tool]`.
_CLASS = re.compile(r"\.(?:[A-Z]\w*|[\w-]+(?=\[))(?:\[.*?\]+)?(?=\.|$)")
# What vLLM calls a prompt that it has read; no field of a request.
_INNER = ("input_text", "input_tokens")
_TOO_LONG = "maximum context length"
# Pydantic's, as vLLM writes them and as they are written by themselves.
_LISTED = re.compile(r"""'msg': (?:'((?:[^'\\]|\\.)*)'|"((?:[^"\\]|\\.)*)")""")
_PRINTED = re.compile(r"validation errors? for [^\n]*\n(?P<place>\S+)\n\s+(?P<said>[^\n\[]+)")
_VALIDATION = re.compile(r"\d+ validation errors?\b")
# The rest of a message from here on: names of models, values of Python, what vLLM adds.
_ASIDE = re.compile(
    r"\s*(Valid aliases:|\((?:parameter|value)=|Traceback \(|:?\s*\{'|<class '|\n).*", re.DOTALL
)

log = telemetry.logger("gateway.inference")


def engine_error(status: int, body: bytes) -> HttpError:
    """The error to raise for an engine's response of `status` 400 or more."""
    if status in (401, 403):
        # Between us and the engine: nothing that the caller could mend.
        return HttpError(502, "The engine refused the gateway.", kind="server_error", code=None)
    fields = _fields(body)
    if status >= 500 and status not in _TOLD:
        log.error("engine_error", status=status, body=body[:LOGGED_BYTES].decode(errors="replace"))
        identifier = telemetry.request_id.get()
        return HttpError(
            status,
            f"The engine failed to answer (request {identifier}).",
            kind="server_error",
            code="engine_error",
        )
    param, message = _told(fields)
    code = fields.get("code")
    if not isinstance(code, str):
        code = "context_length_exceeded" if _TOO_LONG in message else None
    kind = _text(fields.get("type")) or ""
    if not _KIND.fullmatch(kind):
        kind = _KINDS.get(status, "invalid_request_error" if status < 500 else "server_error")
    return HttpError(
        status,
        message,
        kind=kind,
        code=_text(code),
        param=param,
        headers={"retry-after": "1"} if status == 503 else None,
    )


def stream_error(event: bytes) -> bytes:
    """The error that ends a stream, for the client; one of our form, with our code, as it is."""
    fields = _fields(event)
    code = fields.get("code")
    if not isinstance(code, int):
        if isinstance(code, str) or fields.keys() == _OURS:
            return event
        code = 500
    return engine_error(code if 400 <= code < 600 else 500, event).body()


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


def _told(fields: dict[str, Any]) -> tuple[str | None, str]:
    """The field at fault, if one is known, and what is wrong."""
    param = _text(fields.get("param"))
    said = fields.get("message") or fields.get("detail") or ""
    if isinstance(said, list) and said and isinstance(said[0], dict):
        # FastAPI's own form: a list of errors.
        place = said[0].get("loc")
        param = param or (".".join(map(str, place)) if isinstance(place, list) else None)
        return _of_field(param, str(said[0].get("msg", "")))
    if not isinstance(said, str):
        return _of_field(param, "")
    if printed := _PRINTED.search(said):
        return _of_field(param or printed["place"], printed["said"])
    if _VALIDATION.match(said):
        listed = _LISTED.search(said)
        text = (listed[1] or listed[2] or "") if listed else ""
        return _of_field(param, text.replace("\\'", "'"))
    param, message = _field(param), _ASIDE.sub("", said)[:MESSAGE_LENGTH]
    return param, message or _of_field(param, "")[1]


def _of_field(param: str | None, said: str) -> tuple[str | None, str]:
    """A sentence about a field of what a library says of it."""
    param = _field(param)
    said = _ASIDE.sub("", said.removeprefix("Value error, ")).strip(" .`")[:MESSAGE_LENGTH]
    if not param:
        return None, f"{said[:1].upper()}{said[1:]}." if said else "The engine refused the request."
    said = said[:1].lower() + said[1:] or "the engine refused it"
    return param, f"Invalid value for '{param}': {said}."


def _field(param: str | None) -> str | None:
    param = _CLASS.sub("", _PLACE.sub("", param or ""))
    return param if param not in ("", "body", *_INNER) else None


def _text(value: object) -> str | None:
    return str(value)[:200] if isinstance(value, str | int) and value != "" else None
