"""Answers of a keeper to the kubelet, without TLS: none of them tells or changes much."""

from collections.abc import Awaitable, Callable

from aiohttp import web

from windlass_agent.keeper.engine_keeper import EngineKeeper

# The pod template's words for these paths.
STARTED, READY, ALIVE, DRAINED = "/started", "/ready", "/alive", "/drained"


def health(keeper: EngineKeeper, drained: Callable[[], Awaitable[None]]) -> web.Application:
    """The application of the pod's probes, and of the hook that lets requests end first."""

    def probe(holds: Callable[[], bool]) -> Callable[[web.Request], Awaitable[web.Response]]:
        async def answer(_: web.Request) -> web.Response:
            return web.Response(status=200 if holds() else 503)

        return answer

    async def wait(_: web.Request) -> web.Response:
        await drained()
        return web.Response()

    app = web.Application()
    app.router.add_get(STARTED, probe(keeper.has_weights.is_set))
    app.router.add_get(READY, probe(lambda: keeper.serves))
    app.router.add_get(ALIVE, probe(lambda: not keeper.unanswered))
    app.router.add_get(DRAINED, wait)
    return app
