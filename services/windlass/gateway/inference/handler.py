"""The handler of an inference request, from its first byte to its usage record."""

import asyncio
import time
from collections.abc import Awaitable
from functools import partial
from typing import NamedTuple

from windlass.api.usage.v1 import usage_pb2
from windlass.core import telemetry
from windlass.core.errors import PermissionDenied
from windlass.gateway.asgi import ClientLeft, Headers, read_body
from windlass.gateway.errors import HttpError
from windlass.gateway.exchange import HttpExchange
from windlass.gateway.inference.disconnect_watch import DisconnectWatch
from windlass.gateway.inference.engines import (
    Asker,
    EngineConnection,
    EnginePlace,
    Engines,
    NoAnswer,
)
from windlass.gateway.inference.head import CacheSalts, Head, for_engine, read_head
from windlass.gateway.inference.meter import CLIENT_LEFT, UsageBounds, UsageMeter
from windlass.gateway.inference.refusals import engine_error
from windlass.gateway.inference.relay import end_stream, stream, whole, with_comments
from windlass.gateway.inference.routes import EngineEndpoint
from windlass.gateway.inference.sse import Show, UsageFilter
from windlass.gateway.inference.waiting import Judge, ModelFinder
from windlass.gateway.limits import Limiter
from windlass.gateway.usage.spool import UsageSpool
from windlass.inference_api import routes
from windlass.inference_api.errors import ApiError
from windlass.inference_api.kinds import body_check

log = telemetry.logger("gateway.inference")
CHAT, COMPLETION = usage_pb2.USAGE_KIND_CHAT, usage_pb2.USAGE_KIND_COMPLETION
EMBEDDING, SCORE = usage_pb2.USAGE_KIND_EMBEDDING, usage_pb2.USAGE_KIND_SCORE
KINDS: dict[str, int] = {
    routes.CHAT: CHAT,
    routes.COMPLETIONS: COMPLETION,
    routes.EMBEDDINGS: EMBEDDING,
    routes.SCORE: SCORE,
}
_GENERATES = (CHAT, COMPLETION)
Endpoints = tuple[EngineEndpoint, ...]
_PERMISSION = "inference.invoke"
ERROR_BYTES = 1 << 20


class Offer(NamedTuple):
    """Engines that have a model loaded, and those of them that may get a request."""

    known: Endpoints
    able: Endpoints


class BodyJudge:
    """Refuses a body that engines of a kind must not get; checks it once for each kind."""

    __slots__ = ("_passed", "_path", "body", "check")

    def __init__(self, path: str, body: bytes):
        self._path = path
        self._passed = ""
        self.body = body
        # Of the kind that was asked for last.
        self.check = body_check("")

    def __call__(self, kind: str, *, runs: bool) -> None:
        """Raises HttpError for what engines of the kind must not get."""
        check = self.check = body_check(kind)
        if kind == self._passed or (runs and check.repeated):
            return
        try:
            check.refuse(self._path, self.body)
        except ApiError as error:
            raise HttpError(
                error.status, error.message, code=error.code, param=error.param
            ) from None
        self._passed = kind


class InferenceHandler:
    """Answers inference requests by the engines that have the model."""

    def __init__(
        self,
        finder: ModelFinder,
        engines: Engines,
        *,
        limiter: Limiter,
        spool: UsageSpool,
        salts: CacheSalts,
        max_body_bytes: int,
    ):
        self._finder = finder
        self._engines = engines
        self._limiter = limiter
        self._spool = spool
        self._salts = salts
        self._max_body_bytes = max_body_bytes

    async def handle(self, exchange: HttpExchange) -> None:
        """Handles one request of an authenticated caller; raises HttpError or AppError."""
        if _PERMISSION not in exchange.caller.permissions:
            raise PermissionDenied(f"This needs the permission {_PERMISSION}.")
        project_id = exchange.caller.require_project()
        body = await read_body(exchange.receive, exchange.headers, self._max_body_bytes)
        head = read_head(body)
        kind = KINDS.get(exchange.path, usage_pb2.USAGE_KIND_UNSPECIFIED)
        meter = UsageMeter(self._spool, exchange, head.model, UsageBounds.of(kind, head, body))
        if not self._limiter.enabled:
            await self._answer(exchange, head, body, meter, [])
            return
        limits = self._limiter.of(project_id)
        reserved = limits.reservation(head.estimate(len(body)))
        headers = await self._limiter.enter(limits, reserved)
        try:
            await self._answer(exchange, head, body, meter, headers)
        finally:
            self._limiter.leave(limits, reserved, meter.tokens)

    async def _answer(
        self,
        exchange: HttpExchange,
        head: Head,
        body: bytes,
        meter: UsageMeter,
        headers: Headers,
    ) -> None:
        with DisconnectWatch(exchange.receive) as disconnect:
            try:
                judge = BodyJudge(exchange.path, body)
                finding: Awaitable[Offer] = self._find(exchange, head, judge)
                if head.stream and meter.kind in _GENERATES:
                    waits_for = partial(self._finder.waits_for, exchange.caller, head.model)
                    finding = with_comments(finding, exchange, headers, waits_for)
                offer = await finding
                show = Show.ALL
                if head.stream and meter.kind in _GENERATES and not head.wants_every_usage:
                    show = Show.LAST if head.wants_usage else Show.NOTHING
                meter.open()
                with self._finder.under_way(exchange.caller, head.model):
                    usage = show is not Show.ALL
                    response, place = await self._open(
                        exchange, head, judge, offer, headers, usage=usage
                    )
                    choices = head.choices if judge.check.counts_each_choice else 0
                    events = UsageFilter(show, choices=choices)
                    await self._relay(exchange, response, place, meter, disconnect, events, headers)
            except HttpError as error:
                meter.write(error.status)
                if not exchange.status:
                    raise
                disconnect.stop()
                await end_stream(exchange, error)
            except asyncio.CancelledError:
                meter.write(CLIENT_LEFT)
                if disconnect.happened:
                    raise ClientLeft from None
                raise

    async def _find(
        self,
        exchange: HttpExchange,
        head: Head,
        judge: Judge,
        *,
        seconds: float | None = None,
        is_open: bool = False,
    ) -> Offer:
        path = exchange.path
        found = await self._finder.find(
            exchange.caller,
            head.model,
            scores=KINDS[path] == SCORE if path in KINDS else None,
            judge=judge,
            seconds=seconds,
            is_open=is_open,
        )
        return Offer(found, _offering(found, path))

    async def _open(
        self,
        exchange: HttpExchange,
        head: Head,
        judge: BodyJudge,
        offer: Offer,
        headers: Headers,
        *,
        usage: bool,
    ) -> tuple[EngineConnection, EnginePlace]:
        """An engine's answer, and the place there, which the caller gives back.

        Waits for a place where all are taken, and for another engine when those that are known
        are gone.
        """
        caller, path = exchange.caller, exchange.path
        deadline = time.monotonic() + self._finder.hold_seconds
        asker = self._asker(exchange, head)
        while True:
            # Engines that keep no prompts apart keep none at all.
            turns = head.conversation(caller.organization_id) if _salted(judge, offer) else 0
            place = self._engines.place(offer.able, asker, conversation=turns)
            try:
                if place is None:
                    left = deadline - time.monotonic()
                    place = await self._wait(exchange, head, asker, headers, seconds=left)
                    offer = await self._find(exchange, head, judge, is_open=True)
                salt = self._salts.of(caller.organization_id) if _salted(judge, offer) else ""
                body = for_engine(judge.body, head, usage=usage, salt=salt)
                response = await self._engines.open(
                    place, offer.able, path, body, exchange.request_id
                )
                taken, place = place, None
                return response, taken
            except NoAnswer:
                left = deadline - time.monotonic()
                if left <= 0:
                    raise
            finally:
                if place is not None:
                    self._engines.done(place)
            await self._finder.change(caller, head.model, offer.known, seconds=left)
            left = deadline - time.monotonic()
            offer = await self._find(exchange, head, judge, seconds=left, is_open=True)

    async def _wait(
        self, exchange: HttpExchange, head: Head, asker: Asker, headers: Headers, *, seconds: float
    ) -> EnginePlace:
        """A place at an engine, once one is free; a client that streams is told meanwhile."""

        def offers() -> Endpoints:
            try:
                return _offering(self._finder.served(exchange.caller, head.model), exchange.path)
            except HttpError:
                return ()

        waiting: Awaitable[EnginePlace] = self._engines.wait(asker, offers, seconds=seconds)
        if head.stream and KINDS.get(exchange.path) in _GENERATES:
            waiting = with_comments(waiting, exchange, headers, lambda: "the engines are busy")
        return await waiting

    def _asker(self, exchange: HttpExchange, head: Head) -> Asker:
        caller = exchange.caller
        version = self._finder.engine_version(caller, head.model)
        return Asker(version, caller.require_project(), exchange.background)

    async def _relay(
        self,
        exchange: HttpExchange,
        response: EngineConnection,
        place: EnginePlace,
        meter: UsageMeter,
        disconnect: DisconnectWatch,
        events: UsageFilter,
        headers: Headers,
    ) -> None:
        try:
            if response.status >= 400:
                raise engine_error(response.status, await response.read(ERROR_BYTES))
            kind = response.content_type or "application/json"
            headers.append((b"content-type", kind.encode("latin-1", "replace")))
            if kind.startswith("text/event-stream") or exchange.status:
                await stream(exchange, response, meter, disconnect, events, headers)
            else:
                await whole(exchange, response, meter, disconnect, headers)
        finally:
            # Keeps the connection when the body was read to its end, else closes it,
            # which is how the engine learns that nobody listens any more.
            self._engines.done(place, response)


def _salted(judge: BodyJudge, offer: Offer) -> bool:
    """Returns True if the engines keep the prompts of organizations apart by a salt."""
    return judge.check.salted or offer.able[0].cache_salt


def _offering(endpoints: Endpoints, path: str) -> Endpoints:
    """The engines that serve the path; raises HttpError 404 when none does.

    Where some keep the prompts of organizations apart, there are no others among them.
    """
    kind = KINDS.get(path)
    if kind not in _GENERATES:
        if kind == EMBEDDING:
            able = [endpoint for endpoint in endpoints if endpoint.embeddings]
        else:
            able = [endpoint for endpoint in endpoints if path in endpoint.routes]
        if not able:
            raise HttpError(404, f"The model does not support {path}.", param="model")
        endpoints = tuple(able)
    salted = [endpoint for endpoint in endpoints if endpoint.cache_salt]
    return tuple(salted) if salted else endpoints
