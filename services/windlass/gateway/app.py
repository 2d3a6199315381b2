"""The root of the front door: who asks, which handler answers, how errors look."""

import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from prometheus_client import Counter, Histogram

from windlass.core import telemetry
from windlass.core.auth import principal_token
from windlass.core.tokens import TokenAuthority
from windlass.gateway.asgi import ClientLeft, Receive, Scope, Send, respond_error
from windlass.gateway.auth import Authenticator
from windlass.gateway.errors import method_not_allowed, to_http
from windlass.gateway.exchange import Exchange
from windlass.gateway.inference.handler import KINDS, Inference
from windlass.gateway.inference.routes import RouteTable
from windlass.gateway.openai.uploading import FileUploads

log = telemetry.logger("gateway")
REQUESTS = Counter("windlass_http_requests_total", "HTTP requests, by outcome.", ["area", "status"])
SECONDS = Histogram(
    "windlass_http_seconds",
    "Time to answer an HTTP request, whole streams included.",
    ["area"],
    buckets=(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10, 60, 600),
)
CLIENT_LEFT = 499

Application = Callable[[Scope, Receive, Send], Awaitable[None]]


class FrontDoor:
    """The ASGI application."""

    def __init__(
        self,
        *,
        authenticator: Authenticator,
        tokens: TokenAuthority,
        inference: Inference,
        routes: RouteTable,
        uploads: FileUploads,
        objects: Application | None,
        rest: Application,
    ):
        self._authenticator = authenticator
        self._tokens = tokens
        self._inference = inference
        self._routes = routes
        self._uploads = uploads
        self._objects = objects
        self._rest = rest

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers one request."""
        if scope["type"] != "http":
            return
        exchange = Exchange(scope, receive, send)
        telemetry.request_id.set(exchange.request_id)
        area = "none"
        try:
            area = await self._dispatch(exchange)
        except ClientLeft:
            exchange.status = exchange.status or CLIENT_LEFT
        except Exception as error:
            if exchange.status:
                # Half an answer is out: all that is left is to break off.
                log.error("an answer broke off", path=exchange.path, error=repr(error))
                raise
            await respond_error(exchange.send, to_http(error))
        finally:
            _count(area, exchange)

    async def _dispatch(self, exchange: Exchange) -> str:
        path = exchange.path
        if path in KINDS or path in self._routes.extra_paths:
            if exchange.method != "POST":
                raise method_not_allowed(exchange.method, path, "POST")
            exchange.principal = await self._authenticator.authenticate(exchange.headers)
            await self._inference.handle(exchange)
            return "inference"
        if path.startswith("/v1/"):
            await self._identify(exchange)
            if path == "/v1/files" and exchange.method == "POST":
                await self._uploads.handle(exchange)
                return "upload"
        elif path.startswith("/objects/") and self._objects is not None:
            await self._objects(exchange.scope, exchange.receive, exchange.send)
            return "objects"
        exchange.scope.setdefault("state", {})["exchange"] = exchange
        await self._rest(exchange.scope, exchange.receive, exchange.send)
        return "rest"

    async def _identify(self, exchange: Exchange) -> None:
        principal = await self._authenticator.authenticate(exchange.headers)
        exchange.principal = principal
        exchange.identify = partial(self._authenticator.authenticate, exchange.headers)
        principal_token.set(self._tokens.sign_principal(principal))


_children: dict[tuple[str, int], Any] = {}


def _count(area: str, exchange: Exchange) -> None:
    key = (area, exchange.status)
    found = _children.get(key)
    if found is None:
        found = _children[key] = (REQUESTS.labels(area, str(exchange.status)), SECONDS.labels(area))
    found[0].inc()
    found[1].observe(time.perf_counter() - exchange.started)
