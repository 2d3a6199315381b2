"""Answers of our own programs in the place of an engine: OpenAI's errors, JSON and events."""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import aclosing, suppress
from contextvars import ContextVar
from types import MappingProxyType
from typing import Any, cast
from uuid import uuid4

import msgspec
from aiohttp import web

from windlass.core.telemetry import logger, request_id
from windlass.inference_api.errors import ApiError

MAX_BODY_BYTES = 32 * 2**20
END = b"data: [DONE]\n\n"
TRACE = ("traceparent", "tracestate")
# The headers of the current request that continue a client's trace.
trace: ContextVar[Mapping[str, str]] = ContextVar("trace", default=MappingProxyType({}))
# Reasons of what aiohttp refuses by itself.
_CODES = {404: "unknown_url", 405: "method_not_allowed", 413: "request_too_large"}

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
_log = logger("engine")


@web.middleware
async def boundary(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Translates errors into responses; nothing else does."""
    identifier = request.headers.get("x-request-id", "")[:128] or f"req-{uuid4().hex}"
    request_id.set(identifier)
    trace.set({name: request.headers[name] for name in TRACE if name in request.headers})
    try:
        response = await handler(request)
    except ApiError as error:
        response = json_response(error.body(), status=error.status)
    except web.HTTPException as error:
        code = _CODES.get(error.status, "invalid_http")
        refusal = ApiError(error.reason, status=error.status, code=code)
        response = json_response(refusal.body(), status=error.status)
    except ConnectionResetError:
        # The client left mid-stream; there is nobody to tell.
        raise
    except RecursionError:
        refusal = ApiError("The body is nested too deeply.", code="invalid_json")
        response = json_response(refusal.body(), status=400)
    except Exception:
        _log.exception("request_failed", path=request.path)
        refusal = ApiError("Internal error.", status=500, code="internal")
        response = json_response(refusal.body(), status=500)
    if not response.prepared:
        response.headers["x-request-id"] = identifier
    return response


def json_response(body: Any, *, status: int = 200) -> web.Response:
    """A JSON response."""
    return web.Response(
        body=msgspec.json.encode(body), status=status, content_type="application/json"
    )


def event(body: dict[str, Any]) -> bytes:
    """A server-sent event."""
    return b"data: " + msgspec.json.encode(body) + b"\n\n"


async def event_stream(request: web.Request, events: AsyncIterator[bytes]) -> web.StreamResponse:
    """Writes events as they come; an error after the first becomes an event.

    Ends when the client leaves, and closes `events`. Raises ApiError before the first one.
    """
    response = web.StreamResponse(
        headers={
            "Content-Type": "text/event-stream; charset=utf-8",
            "Cache-Control": "no-cache",
            "x-request-id": request_id.get(),
        }
    )
    try:
        async with aclosing(cast("Any", events)) as chunks:
            async for chunk in chunks:
                if not response.prepared:
                    await response.prepare(request)
                await response.write(chunk)
    except ApiError as error:
        if not response.prepared:
            raise
        with suppress(ConnectionResetError):
            await response.write(event(error.body()))
    except ConnectionResetError:
        # aiohttp logs what is raised as an error.
        pass
    return response
