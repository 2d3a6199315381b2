"""Answers of a keeper to the kubelet, without TLS: none of them tells or changes much."""

from collections.abc import Awaitable, Callable

from aiohttp import web

from windlass_agent.engines.load import load_page
from windlass_agent.keeper.engine_keeper import EngineKeeper

# The pod template's words for these paths.
STARTED, READY, ALIVE, DRAINED = "/started", "/ready", "/alive", "/drained"
# Where endpoint pickers look.
LOAD = "/metrics"


def health(
    keeper: EngineKeeper, drained: Callable[[], Awaitable[None]], *, tells_load: bool = False
) -> web.Application:
    """The application of the pod's probes, and of the hook that lets requests end first.

    With `tells_load` it also tells how many requests the engine has, and nothing of whom.
    """

    def probe(holds: Callable[[], bool]) -> Callable[[web.Request], Awaitable[web.Response]]:
        async def answer(_: web.Request) -> web.Response:
            return web.Response(status=200 if holds() else 503)

        return answer

    async def wait(_: web.Request) -> web.Response:
        await drained()
        return web.Response()

    async def load(_: web.Request) -> web.Response:
        page = load_page(keeper.load)
        return web.Response(text=page, content_type="text/plain", status=200 if page else 503)

    app = web.Application()
    app.router.add_get(STARTED, probe(keeper.has_weights.is_set))
    app.router.add_get(READY, probe(lambda: keeper.serves))
    app.router.add_get(ALIVE, probe(lambda: not keeper.unanswered))
    app.router.add_get(DRAINED, wait)
    if tells_load:
        app.router.add_get(LOAD, load)
    return app
