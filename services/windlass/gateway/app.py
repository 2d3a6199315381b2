"""The root of the gateway: authentication, dispatch to handlers, and errors."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from windlass.core import telemetry
from windlass.core.errors import PermissionDenied
from windlass.core.objects import ObjectRoutes
from windlass.core.rpc.auth import Principal, client_address, principal_token
from windlass.core.rpc.interceptor import AuditSink
from windlass.core.rpc.tokens import TokenAuthority
from windlass.gateway.asgi import (
    ClientLeft,
    Headers,
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
from windlass.gateway.listener.draining import RequestDrain
from windlass.gateway.openai.creation import PATH as CREATION
from windlass.gateway.openai.creation import JobCreation
from windlass.gateway.openai.token_exchange import PATH as EXCHANGE
from windlass.gateway.openai.token_exchange import TokenExchanges
from windlass.gateway.openai.uploading import FileUploads
from windlass.gateway.scim.errors import is_scim, scim_error
from windlass.gateway.scim.http import ScimHandler
from windlass.gateway.tinker.errors import is_tinker, tinker_error
from windlass.gateway.tinker.handler import HEALTH, TinkerHandler
from windlass.inference_api.routes import ENGINE_PATHS
from windlass.metrics.gateway import REQUESTS, SECONDS

log = telemetry.logger("gateway")
CLIENT_LEFT = 499
TOO_MANY = 429
# Open on the operators' listener; here they say too much to somebody unknown.
KEYED_PAGES = frozenset({"/metrics", "/docs", "/openapi.json"})
# Ends of paths whose POST may end the key that asks, or narrow it.
_MAY_END_ITS_KEY = (
    "/archive", "/rotate", "/model_permissions", "/end", "/Bulk", "/activate", "/deactivate",
)  # fmt: skip

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
        exchanges: TokenExchanges,
        tokens: TokenAuthority,
        inference: InferenceHandler,
        drain: RequestDrain,
        uploads: FileUploads,
        creation: JobCreation,
        scim: ScimHandler,
        tinker: TinkerHandler,
        objects: ObjectRoutes,
        rest: Application,
        audit: AuditSink,
    ):
        self._authenticator = authenticator
        self._attempts = attempts
        self._origins = origins
        self._active = active
        self._exchanges = exchanges
        self._tokens = tokens
        self._inference = inference
        self._drain = drain
        self._uploads = uploads
        self._creation = creation
        self._scim = scim
        self._tinker = tinker
        self._objects = objects
        self._rest = rest
        self._audit = audit

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
            await _end(exchange, _error(exchange, exchange.held.reason))
        except Exception as error:
            if exchange.status:
                # Half an answer is out: all that is left is to break off.
                log.error("response_broken", path=exchange.path, error=repr(error))
                raise
            if isinstance(error, PermissionDenied) and exchange.principal is not None:
                self._note_refusal(exchange, exchange.principal, error)
            await self._refuse(exchange, _error(exchange, error))
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
            with self._drain.counted():
                await self._inference.handle(exchange)
            return "inference"
        if path == EXCHANGE:
            await self._exchanges.handle(exchange)
            return "rest"
        if path.startswith("/v1/"):
            await self._identify(exchange)
            if path == "/v1/files" and exchange.method == "POST":
                await self._uploads.handle(exchange)
                return "upload"
            if path == CREATION and exchange.method == "POST":
                await self._creation.handle(exchange)
                return "rest"
        elif path.startswith("/objects/"):
            await self._objects(
                exchange.scope, exchange.receive, exchange.send, self._hold(exchange)
            )
            return "objects"
        elif is_scim(path) or is_tinker(path):
            return await self._answer_front(exchange)
        elif path in KEYED_PAGES:
            await self._identify(exchange)
        return await self._answer_rest(exchange)

    async def _answer_front(self, exchange: HttpExchange) -> str:
        """Answers a path of another API, before the JSON path that refuses binary bodies."""
        if exchange.path == HEALTH:
            await self._tinker.healthy(exchange)
            return "tinker"
        await self._identify(exchange)
        if is_scim(exchange.path):
            await self._scim.handle(exchange)
            return "rest"
        await self._tinker.handle(exchange)
        return "tinker"

    async def _answer_rest(self, exchange: HttpExchange) -> str:
        state = exchange.scope.setdefault("state", {})
        state["exchange"] = exchange
        try:
            await self._rest(exchange.scope, exchange.receive, exchange.send)
        finally:
            # The exchange has the scope: that would be a cycle.
            del state["exchange"]
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
        client_address.set(self._origins.address(exchange.peer, exchange.headers))

    async def _admit(self, exchange: HttpExchange, *, graced: bool = False) -> Principal:
        # Of names that are there twice, `headers` has one.
        given = exchange.scope["headers"]
        if len(given) != len(exchange.headers):
            # A proxy in front of us may have judged, or written, the other one.
            _require_one(given, b"authorization", "Authorization")
            _require_one(given, b"client-cert", "Client-Cert")
        key = await self._attempts.authenticate(exchange.headers, exchange.peer, graced=graced)
        origin = exchange.peer, exchange.headers, exchange.certificate
        try:
            principal = exchange.principal = self._origins.admit(key, *origin)
        except PermissionDenied as error:
            self._note_refusal(exchange, key.principal, error)
            raise
        # Not of the exchange itself: that would be a cycle, and each request left to a collection.
        ask = exchange.identify = partial(self._ask, *origin)
        exchange.held = self._active.enter(principal, ask, exchange.task, graced=graced)
        # It is over in a moment, and may be what ends its own key: its answer must say so.
        exchange.held.is_minded = exchange.method in ("DELETE", "PATCH", "PUT") or (
            exchange.method == "POST" and exchange.path.endswith(_MAY_END_ITS_KEY)
        )
        return principal

    def _note_refusal(
        self, exchange: HttpExchange, principal: Principal, error: PermissionDenied
    ) -> None:
        """Has a refusal in the audit log that no service knows of."""
        address = self._origins.address(exchange.peer, exchange.headers)
        self._audit.refuse(principal, exchange.action, error, address)

    async def _ask(self, peer: str, headers: dict[bytes, bytes], own: bytes) -> Principal:
        known = await self._authenticator.authenticate(headers, peer)
        return self._origins.admit(known, peer, headers, own)

    async def _ask_of(
        self, key_id: str, peer: str, headers: dict[bytes, bytes], own: bytes
    ) -> Principal:
        known = await self._authenticator.recognize(key_id)
        return self._origins.admit(known, peer, headers, own)

    def _hold(self, exchange: HttpExchange) -> Callable[[str], Awaitable[None]]:
        async def hold(key_id: str) -> None:
            origin = exchange.peer, exchange.headers, exchange.certificate
            ask = partial(self._ask_of, key_id, *origin)
            exchange.held = self._active.enter(await ask(), ask, exchange.task)

        return hold


def _error(exchange: HttpExchange, error: BaseException) -> HttpError:
    """The error of a request, in the shape of its API."""
    if is_scim(exchange.path):
        return scim_error(error)
    return tinker_error(error) if is_tinker(exchange.path) else to_http(error)


async def _end(exchange: HttpExchange, reason: HttpError) -> None:
    """Sends the error of a failed request; raises if its response has already begun."""
    if (task := asyncio.current_task()) is not None:
        task.uncancel()
    if exchange.status:
        raise reason
    await respond_error(exchange.send, reason)


def _require_one(headers: Headers, name: bytes, shown: str) -> None:
    if sum(one == name for one, _ in headers) > 1:
        raise HttpError(400, f"The request has more than one {shown} header.")


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
