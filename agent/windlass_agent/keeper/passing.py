"""Requests passed on to an engine as they come, and its answers to whoever asked."""

import asyncio
from http import HTTPStatus

import aiohttp
from aiohttp import web

from windlass.inference_api.errors import ApiError
from windlass.inference_api.routes import ABORT, ENGINE_ROUTES
from windlass_agent.engines.boundary import MAX_BODY_BYTES, TRACE
from windlass_agent.engines.endpoint import SocketAddress

# What a gateway may ask of an engine, and nothing that steers it.
PASSED_ROUTES = tuple(sorted(ENGINE_ROUTES | {ABORT}))
# Of one hop, or written by this one.
_HOP = frozenset(
    {
        "connection", "keep-alive", "transfer-encoding", "te", "trailer", "upgrade",
        "proxy-authenticate", "proxy-authorization", "content-length", "host", "date", "server",
    }
)  # fmt: skip
_PASSED = ("content-type", "accept", "x-request-id", *TRACE)
_CONNECT_SECONDS = 5


def engine_session(address: SocketAddress) -> aiohttp.ClientSession:
    """Connections to an engine, one for each request."""
    # The engine closes idle connections when it likes (vLLM after 5 s), and a POST that meets
    # its end is not sent again.
    connector: aiohttp.BaseConnector
    if address.uds is not None:
        connector = aiohttp.UnixConnector(str(address.uds), limit=0, force_close=True)
    else:
        connector = aiohttp.TCPConnector(limit=0, force_close=True)
    timeout = aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_SECONDS)
    return aiohttp.ClientSession(
        address.base_url, connector=connector, timeout=timeout, auto_decompress=False
    )


async def pass_on(request: web.Request, session: aiohttp.ClientSession) -> web.StreamResponse:
    """Answers a request with what the engine answers; a client that leaves ends it there.

    Raises ApiError for a body that is too long, and where the engine cannot be reached. One that
    breaks off before its answer has had the request, so the connection is cut here as well: 503
    would say that nothing was done (ADR 43).
    """
    headers = {name: request.headers[name] for name in _PASSED if name in request.headers}
    headers["content-length"] = str(_length(request))
    try:
        # Passed on as it comes: what others send at once would fill the memory here.
        async with session.post(request.path, data=request.content, headers=headers) as answer:
            return await _returned(request, answer)
    except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
        raise away() from error
    except (aiohttp.ClientError, OSError) as error:
        raise broken_off(request) from error
    except asyncio.CancelledError:
        # Whatever ends it may have been asked of the engine.
        cut(request)
        raise


def away() -> ApiError:
    """The error for an engine that does not answer."""
    return ApiError(
        "The engine has stopped; try again.",
        status=HTTPStatus.SERVICE_UNAVAILABLE,
        code="engine_stopped",
    )


async def _returned(request: web.Request, answer: aiohttp.ClientResponse) -> web.StreamResponse:
    headers = {name: value for name, value in answer.headers.items() if name.lower() not in _HOP}
    response = web.StreamResponse(status=answer.status, headers=headers)
    response.content_length = answer.content_length
    await response.prepare(request)
    try:
        async for chunk in answer.content.iter_any():
            await response.write(chunk)
    except (aiohttp.ClientError, ConnectionResetError):
        cut(request)
    return response


def broken_off(request: web.Request) -> ApiError:
    """Cuts the connection; returns the error that nobody is told."""
    cut(request)
    return ApiError("The engine broke off.", status=HTTPStatus.BAD_GATEWAY, code="engine_failed")


def cut(request: web.Request) -> None:
    """Cuts the connection, so that whoever reads does not take the answer for whole."""
    if request.transport is not None:
        request.transport.abort()


def _length(request: web.Request) -> int:
    """The announced length of a body; raises ApiError for none, or for too much."""
    length = request.content_length
    if length is None:
        raise ApiError("The body needs a length.", status=HTTPStatus.LENGTH_REQUIRED)
    if length > MAX_BODY_BYTES:
        raise ApiError(
            f"The body is longer than {MAX_BODY_BYTES} bytes.",
            status=HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
            code="request_too_large",
        )
    return length
