"""Answers of SGLang by the name that was asked for, and its refusals in OpenAI's shape."""

from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import msgspec
from msgspec import Raw

from windlass.core.telemetry import logger
from windlass.inference_api.errors import ApiError
from windlass_agent.engines.boundary import END
from windlass_agent.engines.kept.events import DONE, events

_TOO_LONG = "context length"
_log = logger("engine")
_fields = msgspec.json.Decoder(dict[str, Raw]).decode
_document = msgspec.json.Decoder(dict[str, Any]).decode
_encode = msgspec.json.encode


def whole(content: bytes, model: str) -> bytes:
    """An answer that is not streamed; raises ApiError for what is none."""
    try:
        return _encode(_named(_fields(content), model))
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise _no_answer(error) from error


async def chunks(stream: aiohttp.StreamReader, model: str) -> AsyncIterator[bytes]:
    """Yields server-sent events up to the end; raises ApiError for an error in their midst."""
    is_done = False
    async for comment, data in events(stream):
        if comment:
            yield comment + b"\n\n"
        elif data == DONE:
            is_done = True
            yield END
        else:
            yield b"data: " + _chunk(data, model) + b"\n\n"
    if not is_done:
        raise ApiError("The engine broke off.", status=502, code="engine_failed")


def _chunk(data: bytes, model: str) -> bytes:
    try:
        fields = _fields(data)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise _no_answer(error) from error
    if "error" in fields:
        raise refusal(data, 500)
    return _encode(_named(fields, model))


def refusal(content: bytes, status: int) -> ApiError:
    """A refusal: an object `error`, its fields by themselves, or words alone.

    An error in a stream has a status of its own, since its headers have gone.
    """
    try:
        answer = _document(content)
    except (msgspec.DecodeError, UnicodeDecodeError):
        answer = {}
    error = answer.get("error", answer)
    error = error if isinstance(error, dict) else {"message": error}
    code = error.get("code")
    if isinstance(code, int) and 400 <= code < 600:
        status = code
    message = str(error.get("message") or "The engine refused the request.")[:4000]
    if status >= 500 and status != 503:
        _log.error("sglang_failed", status=status, said=message)
        return ApiError("The engine failed to answer.", status=status, code="engine_error")
    if status == 503:
        return ApiError(message, status=status, code="engine_overloaded")
    param = error.get("param")
    return ApiError(
        message,
        status=status,
        param=str(param)[:200] if param else None,
        code="context_length_exceeded" if _TOO_LONG in message else None,
    )


def _named(fields: dict[str, Raw], model: str) -> dict[str, Raw]:
    if "model" in fields:
        fields["model"] = Raw(_encode(model))
    return fields


def _no_answer(error: Exception) -> ApiError:
    _log.error("sglang_answered_no_json", reason=str(error))
    return ApiError("The engine's answer is none.", status=502, code="engine_failed")
