"""The root of the gateway: authentication, dispatch to handlers, and errors."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from windlass.core import telemetry
from windlass.core.errors import AppError
from windlass.core.objects import ObjectRoutes
from windlass.core.rpc.auth import Principal, principal_token
from windlass.core.rpc.tokens import TokenAuthority
from windlass.gateway.asgi import (
    ClientLeft,
    Receive,
    Scope,
    Send,
    has_large_body,
    refuse_upload,
    respond_error,
)
from windlass.gateway.authentication.active_requests import ActiveRequests
from windlass.gateway.authentication.attempts import Attempts
from windlass.gateway.authentication.authenticator import Authenticator
from windlass.gateway.authentication.origins import KeyOrigins
from windlass.gateway.errors import HttpError, method_not_allowed, to_http
from windlass.gateway.exchange import HttpExchange
from windlass.gateway.inference.handler import InferenceHandler
from windlass.gateway.inference.offers import KINDS
from windlass.gateway.openai.creation import PATH as CREATION
from windlass.gateway.openai.creation import JobCreation
from windlass.gateway.openai.uploading import FileUploads
from windlass.inference_api.routes import ENGINE_PATHS
from windlass.metrics.gateway import REQUESTS, SECONDS

log = telemetry.logger("gateway")
CLIENT_LEFT = 499
TOO_MANY = 429
# Open on the operators' listener; here they say too much to somebody unknown.
KEYED_PAGES = frozenset({"/metrics", "/docs", "/openapi.json"})

Application = Callable[[Scope, Receive, Send], Awaitable[None]]


class GatewayApp:
    """The ASGI application."""

    def __init__(
        self,
        *,
        authenticator: Authenticator,
        attempts: Attempts,
        origins: KeyOrigins,
        active: ActiveRequests,
        tokens: TokenAuthority,
        inference: InferenceHandler,
        uploads: FileUploads,
        creation: JobCreation,
        objects: ObjectRoutes | None,
        rest: Application,
    ):
        self._authenticator = authenticator
        self._attempts = attempts
        self._origins = origins
        self._active = active
        self._tokens = tokens
        self._inference = inference
        self._uploads = uploads
        self._creation = creation
        self._objects = objects
        self._rest = rest

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handles one request."""
        if scope["type"] != "http":
            return
        exchange = HttpExchange(scope, receive, send)
        telemetry.request_id.set(exchange.request_id)
        area = "none"
        try:
            area = await self._dispatch(exchange)
        except ClientLeft:
            exchange.status = exchange.status or CLIENT_LEFT
        except asyncio.CancelledError:
            if exchange.held is None or exchange.held.reason is None:
                raise
            await _end(exchange, exchange.held.reason)
        except Exception as error:
            if exchange.status:
                # Half an answer is out: all that is left is to break off.
                log.error("response_broken", path=exchange.path, error=repr(error))
                raise
            await self._refuse(exchange, to_http(error))
        finally:
            if exchange.held is not None:
                self._active.leave(exchange.held)
            _count(area, exchange)
            _note(exchange)

    async def _dispatch(self, exchange: HttpExchange) -> str:
        path = exchange.path
        if path in KINDS or path in ENGINE_PATHS:
            if exchange.method != "POST":
                raise method_not_allowed(exchange.method, path, "POST")
            await self._admit(exchange, graced=True)
            await self._inference.handle(exchange)
            return "inference"
        if path.startswith("/v1/"):
            await self._identify(exchange)
            if path == "/v1/files" and exchange.method == "POST":
                await self._uploads.handle(exchange)
                return "upload"
            if path == CREATION and exchange.method == "POST":
                await self._creation.handle(exchange)
                return "rest"
        elif path.startswith("/objects/") and self._objects is not None:
            await self._objects(
                exchange.scope, exchange.receive, exchange.send, self._hold(exchange)
            )
            return "objects"
        elif path in KEYED_PAGES:
            await self._identify(exchange)
        exchange.scope.setdefault("state", {})["exchange"] = exchange
        await self._rest(exchange.scope, exchange.receive, exchange.send)
        return "rest"

    async def _refuse(self, exchange: HttpExchange, error: HttpError) -> None:
        anonymous = exchange.principal is None
        if (anonymous or error.status == 413) and has_large_body(exchange.headers):
            await refuse_upload(exchange.send, exchange.receive, error, anonymous=anonymous)
        else:
            await respond_error(exchange.send, error)

    async def _identify(self, exchange: HttpExchange) -> None:
        principal = await self._admit(exchange)
        principal_token.set(self._tokens.sign_principal(principal))

    async def _admit(self, exchange: HttpExchange, *, graced: bool = False) -> Principal:
        if sum(name == b"authorization" for name, _ in exchange.scope["headers"]) > 1:
            # A proxy in front of us may have judged the other one.
            raise HttpError(400, "The request has more than one Authorization header.")
        key = await self._attempts.authenticate(exchange.headers, exchange.peer, graced=graced)
        headers, peer = exchange.headers, exchange.peer
        principal = exchange.principal = self._origins.admit(key, peer, headers)
        # Not of the exchange itself: that would be a cycle, and each request left to a collection.
        ask = exchange.identify = partial(self._ask, peer, headers)
        exchange.held = self._active.enter(principal, ask, graced=graced)
        # It is over in a moment, and may be what ends its own key: its answer must say so.
        exchange.held.is_minded = exchange.method in ("DELETE", "PATCH", "PUT") or (
            exchange.method == "POST" and exchange.path.endswith(("/archive", "/rotate"))
        )
        return principal

    async def _ask(self, peer: str, headers: dict[bytes, bytes]) -> Principal:
        return self._origins.admit(await self._authenticator.authenticate(headers), peer, headers)

    async def _ask_of(self, key_id: str, peer: str, headers: dict[bytes, bytes]) -> Principal:
        return self._origins.admit(await self._authenticator.recognize(key_id), peer, headers)

    def _hold(self, exchange: HttpExchange) -> Callable[[str], Awaitable[None]]:
        async def hold(key_id: str) -> None:
            ask = partial(self._ask_of, key_id, exchange.peer, exchange.headers)
            exchange.held = self._active.enter(await ask(), ask)

        return hold


async def _end(exchange: HttpExchange, reason: AppError) -> None:
    """Sends the error of a failed request; raises if its response has already begun."""
    if (task := asyncio.current_task()) is not None:
        task.uncancel()
    if exchange.status:
        raise reason
    await respond_error(exchange.send, to_http(reason))


def _note(exchange: HttpExchange) -> None:
    """Logs a refusal under the id that its caller was told; not those of who asks too often."""
    status = exchange.status
    if 400 <= status < 500 and status not in (TOO_MANY, CLIENT_LEFT):
        log.info("request_refused", status=status, method=exchange.method, path=exchange.path[:256])


_children: dict[tuple[str, int], Any] = {}


def _count(area: str, exchange: HttpExchange) -> None:
    key = (area, exchange.status)
    found = _children.get(key)
    if found is None:
        found = _children[key] = (REQUESTS.labels(area, str(exchange.status)), SECONDS.labels(area))
    found[0].inc()
    found[1].observe(time.perf_counter() - exchange.started)
