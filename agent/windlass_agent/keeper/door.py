"""The only way into the pod: what the gateway may ask of an engine, and nothing that steers it."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from http import HTTPStatus

import aiohttp
from aiohttp import web

from windlass.inference_api.errors import ApiError
from windlass.inference_api.routes import ENGINE_ROUTES
from windlass_agent.engines.boundary import MAX_BODY_BYTES, TRACE, boundary
from windlass_agent.engines.endpoint import parse_endpoint
from windlass_agent.keeper.engine_keeper import EngineKeeper

# Without an open request, since a gateway may have sent one before it heard that the pod ends.
QUIET_SECONDS = 1.0
_LOOK_SECONDS = 0.1
# Of one hop, or written by this one.
_HOP = frozenset(
    {
        "connection", "keep-alive", "transfer-encoding", "te", "trailer", "upgrade",
        "proxy-authenticate", "proxy-authorization", "content-length", "host", "date", "server",
    }
)  # fmt: skip
_PASSED = ("content-type", "accept", "x-request-id", *TRACE)


class Door:
    """Passes requests on to the engine; a client that leaves ends them there."""

    def __init__(self, keeper: EngineKeeper, endpoint: str):
        self._keeper = keeper
        self._address = parse_endpoint(endpoint)
        self._session: aiohttp.ClientSession | None = None
        self._open: set[asyncio.Timeout] = set()
        keeper.when_silent(self._cut)

    def app(self) -> web.Application:
        """The application behind TLS."""
        app = web.Application(middlewares=[boundary])
        for path in sorted(ENGINE_ROUTES):
            app.router.add_post(path, self._pass_on)
        app.cleanup_ctx.append(self._connected)
        return app

    async def drained(self) -> None:
        """Returns once no request has been open for a moment, or none will be answered."""
        clock = asyncio.get_running_loop().time
        quiet_since = clock()
        while not self._keeper.unanswered and clock() - quiet_since < QUIET_SECONDS:
            await asyncio.sleep(_LOOK_SECONDS)
            if self._open:
                quiet_since = clock()

    async def _connected(self, _: web.Application) -> AsyncIterator[None]:
        # The engine closes idle connections when it likes (vLLM after 5 s), and a POST that meets
        # its end is not sent again.
        connector = aiohttp.TCPConnector(limit=0, force_close=True)
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=5)
        async with aiohttp.ClientSession(
            self._address.base_url, connector=connector, timeout=timeout, auto_decompress=False
        ) as self._session:
            yield

    async def _pass_on(self, request: web.Request) -> web.StreamResponse:
        """Raises ApiError while the engine does not answer."""
        if not self._keeper.serves or self._session is None:
            raise _away()
        headers = {name: request.headers[name] for name in _PASSED if name in request.headers}
        headers["content-length"] = str(_length(request))
        try:
            # Passed on as it comes: what others send at once would fill the keeper's memory.
            async with (
                self._counted(),
                self._session.post(request.path, data=request.content, headers=headers) as answer,
            ):
                return await _returned(request, answer)
        except (aiohttp.ClientConnectionError, TimeoutError) as error:
            raise _away() from error

    @contextlib.asynccontextmanager
    async def _counted(self) -> AsyncIterator[None]:
        """Counts the block as an open request; raises TimeoutError when it is cut."""
        async with asyncio.timeout(None) as scope:
            self._open.add(scope)
            try:
                yield
            finally:
                self._open.discard(scope)

    def _cut(self) -> None:
        """Ends all open requests, which nothing will answer."""
        now = asyncio.get_running_loop().time()
        cut, self._open = self._open, set()
        for scope in cut:
            scope.reschedule(now)


async def _returned(request: web.Request, answer: aiohttp.ClientResponse) -> web.StreamResponse:
    headers = {name: value for name, value in answer.headers.items() if name.lower() not in _HOP}
    response = web.StreamResponse(status=answer.status, headers=headers)
    response.content_length = answer.content_length
    await response.prepare(request)
    try:
        async for chunk in answer.content.iter_any():
            await response.write(chunk)
    except (aiohttp.ClientError, ConnectionResetError):
        _abort(request)
    except asyncio.CancelledError:
        _abort(request)
        raise
    return response


def _abort(request: web.Request) -> None:
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


def _away() -> ApiError:
    return ApiError(
        "The engine has stopped; try again.",
        status=HTTPStatus.SERVICE_UNAVAILABLE,
        code="engine_stopped",
    )
