"""The only way into the pod: what the gateway may ask of an engine, and nothing that steers it."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import aiohttp
from aiohttp import web

from windlass_agent.engines.boundary import boundary
from windlass_agent.engines.endpoint import parse_endpoint
from windlass_agent.keeper.engine_keeper import EngineKeeper
from windlass_agent.keeper.passing import (
    PASSED_ROUTES,
    away,
    broken_off,
    engine_session,
    pass_on,
)

# Without an open request, since a gateway may have sent one before it heard that the pod ends.
QUIET_SECONDS = 1.0
_LOOK_SECONDS = 0.1


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
        for path in PASSED_ROUTES:
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
        async with engine_session(self._address) as self._session:
            yield

    async def _pass_on(self, request: web.Request) -> web.StreamResponse:
        """Raises ApiError while the engine does not answer."""
        if not self._keeper.serves or self._session is None:
            raise away()
        try:
            async with self._counted():
                return await pass_on(request, self._session)
        except TimeoutError as error:
            raise broken_off(request) from error

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
