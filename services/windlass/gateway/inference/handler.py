"""The handler of an inference request, from its first byte to its usage record."""

import asyncio
import time
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

from windlass.api.usage.v1 import usage_pb2
from windlass.core import telemetry
from windlass.core.errors import PermissionDenied
from windlass.gateway.asgi import ClientLeft, Headers, read_body
from windlass.gateway.errors import HttpError, to_http
from windlass.gateway.exchange import HttpExchange
from windlass.gateway.inference.disconnect_watch import DisconnectWatch
from windlass.gateway.inference.engines import (
    ENGINE_FAILED,
    Asker,
    EngineBroken,
    EngineConnection,
    EnginePlace,
    Engines,
    NoAnswer,
    Sent,
    Tenant,
    demand_line,
    failed,
    named_steps,
    named_version,
)
from windlass.gateway.inference.engines.trace import trace_headers
from windlass.gateway.inference.head import (
    BodyJudge,
    CacheSalts,
    Head,
    for_engine,
    read_head,
    renamed,
)
from windlass.gateway.inference.images.inlining import Images
from windlass.gateway.inference.images.room import ImageHold
from windlass.gateway.inference.meter import CLIENT_LEFT, UsageBounds, UsageMeter
from windlass.gateway.inference.names import ServedCheckpoints
from windlass.gateway.inference.offers import (
    CHAT,
    GENERATES,
    KINDS,
    Endpoints,
    Offer,
    is_salted,
    offered,
    offering,
)
from windlass.gateway.inference.refusals import engine_error
from windlass.gateway.inference.relay import (
    StreamComments,
    end_stream,
    stream,
    whole,
    with_comments,
)
from windlass.gateway.inference.sse import Show, UsageFilter
from windlass.gateway.inference.waiting import ModelFinder
from windlass.gateway.limits import Limiter
from windlass.gateway.usage.spool import UsageSpool
from windlass.inference_api.images.parts import ImagePlace, image_places

log = telemetry.logger("gateway.inference")
# Of clients that do not set `prompt_cache_key`.
SESSION = b"x-session-id"
_PERMISSION = "inference.invoke"
ERROR_BYTES = 1 << 20


class EngineRequest(NamedTuple):
    """A request that goes to an engine."""

    exchange: HttpExchange
    head: Head
    judge: BodyJudge
    meter: UsageMeter
    # Whether usage is asked for in every chunk.
    usage: bool
    comments: StreamComments | None
    disconnect: DisconnectWatch
    hold: ImageHold

    def asker(self, offer: Offer) -> Asker:
        """Returns whose request it is, and for the engines of which version."""
        caller = self.exchange.caller
        tenant = Tenant(caller.organization_id, caller.require_project())
        return Asker(offer.served.engine_version_id, tenant, self.background)

    @property
    def background(self) -> bool:
        """True if others go before it."""
        return self.exchange.background or self.head.may_wait


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
        images: Images,
        checkpoints: ServedCheckpoints,
        max_body_bytes: int,
    ):
        self._finder = finder
        self._engines = engines
        self._limiter = limiter
        self._spool = spool
        self._salts = salts
        self._images = images
        self._checkpoints = checkpoints
        self._max_body_bytes = max_body_bytes

    async def handle(self, exchange: HttpExchange) -> None:
        """Handles one request of an authenticated caller; raises HttpError or AppError."""
        if _PERMISSION not in exchange.caller.permissions:
            raise PermissionDenied(f"This needs the permission {_PERMISSION}.")
        project_id = exchange.caller.require_project()
        body = await read_body(exchange.receive, exchange.headers, self._max_body_bytes)
        head = read_head(body)
        demand_line(exchange.headers)
        kind = KINDS.get(exchange.path, usage_pb2.USAGE_KIND_UNSPECIFIED)
        places = image_places(bytes(head.messages)) if kind == CHAT else ()
        read = len(body) - sum(place.url_bytes for place in places)
        bounds = UsageBounds.of(kind, head, read)
        if not self._limiter.enabled:
            judge, meter = await self._named(exchange, head, body, places, bounds)
            await self._answer(exchange, head, judge, meter, [])
            return
        limits = self._limiter.of(project_id)
        reserved = limits.reservation(head.estimate(read, len(places)))
        headers = await self._limiter.enter(limits, reserved)
        used = 0
        try:
            # Who may ask no more asks no other service either.
            judge, meter = await self._named(exchange, head, body, places, bounds)
            try:
                await self._answer(exchange, head, judge, meter, headers)
            finally:
                used = meter.tokens
        finally:
            self._limiter.leave(limits, reserved, used)

    async def _named(
        self,
        exchange: HttpExchange,
        head: Head,
        body: bytes,
        places: Sequence[ImagePlace],
        bounds: UsageBounds,
    ) -> tuple[BodyJudge, UsageMeter]:
        """Returns what judges and counts the request, which names a model from here on."""
        model = await self._checkpoints.model_of(exchange.caller, head.model)
        if model != head.model:
            head.model, body = model, renamed(body, model)
        judge = BodyJudge(exchange.path, body, model, places)
        return judge, UsageMeter(self._spool, exchange, model, bounds)

    async def _answer(
        self,
        exchange: HttpExchange,
        head: Head,
        judge: BodyJudge,
        meter: UsageMeter,
        headers: Headers,
    ) -> None:
        room = self._images.room.of(exchange.caller.require_project())
        with DisconnectWatch(exchange.receive, exchange.task) as disconnect, room as hold:
            try:
                streams = bool(head.stream) and meter.kind in GENERATES
                comments = StreamComments(exchange, headers) if streams else None
                show = Show.ALL
                if streams and not head.wants_every_usage:
                    show = Show.LAST if head.wants_usage else Show.NOTHING
                usage = show is not Show.ALL
                ask = EngineRequest(exchange, head, judge, meter, usage, comments, disconnect, hold)
                offer = await self._prepare(ask)
                with self._finder.under_way(exchange.caller, head.model, offer.served):
                    response, place = await self._open(ask, offer)
                    choices = head.choices if judge.check.counts_each_choice else 0
                    events = UsageFilter(show, choices=choices)
                    await self._relay(exchange, response, place, meter, disconnect, events, headers)
                if disconnect.happened:
                    raise ClientLeft
            except ClientLeft:
                raise
            except Exception as error:
                told = to_http(error)
                meter.write(told.status, worked=told.code == ENGINE_FAILED)
                if disconnect.happened:
                    raise ClientLeft from None
                if not exchange.status:
                    raise told from error
                disconnect.stop()
                await end_stream(exchange, told)
            except asyncio.CancelledError:
                meter.write(CLIENT_LEFT)
                if disconnect.happened:
                    raise ClientLeft from None
                raise

    async def _prepare(self, ask: EngineRequest) -> Offer:
        """Finds engines, and writes images into the request; a client that streams is told."""
        exchange, head, judge = ask.exchange, ask.head, ask.judge
        found = self._find(exchange, head, judge)
        if ask.comments is None:
            offer = await found
        else:
            waits_for = partial(self._finder.waits_for, exchange.caller, head.model)
            offer = await with_comments(found, ask.comments, waits_for)
        if judge.images:
            await with_comments(self._read_images(ask), ask.comments, lambda: "images are read")
        return offer

    async def _read_images(self, ask: EngineRequest) -> None:
        """Writes the images of a request into it; raises HttpError for what is none."""
        caller, judge = ask.exchange.caller, ask.judge
        salt, project_id = self._salts.of(caller.organization_id), caller.require_project()
        inlined = await self._images.inline(ask.hold, project_id, judge.body, judge.images, salt)
        judge.body = inlined.body
        ask.meter.see(inlined.images)

    async def _find(
        self,
        exchange: HttpExchange,
        head: Head,
        judge: BodyJudge,
        *,
        seconds: float | None = None,
        is_open: bool = False,
    ) -> Offer:
        path = exchange.path
        found = await self._finder.find(
            exchange.caller,
            head.model,
            path=path,
            judge=judge,
            seconds=seconds,
            is_open=is_open,
        )
        return Offer(found, offering(found.endpoints, path, judge))

    async def _open(self, ask: EngineRequest, offer: Offer) -> tuple[EngineConnection, EnginePlace]:
        """An engine's answer, and the place there, which the caller gives back.

        Waits for a place where all are taken, and for another engine when those that are known
        are gone.
        """
        exchange, head, judge = ask.exchange, ask.head, ask.judge
        deadline = time.monotonic() + self._finder.hold_seconds
        again = True
        while True:
            place = self._place(ask, offer)
            try:
                if place is None:
                    place = await self._wait(ask, offer, deadline)
                    left = deadline - time.monotonic()
                    offer = await self._find(exchange, head, judge, seconds=left, is_open=True)
                    if place.pool.address not in {one.address for one in offer.able}:
                        continue
                ask.meter.open()
                body, lines = self._body(ask, offer, place), trace_headers(exchange.headers)
                ids = (exchange.path, body, exchange.unique_id)
                lines += demand_line(exchange.headers)
                sent = Sent(*ids, lines, ask.meter.asked, ask.meter.refused)
                ask.disconnect.before = partial(self._abort, ask.meter, place, offer.able, sent)
                response = await self._engines.open(place, offer.able, sent, again=again)
                taken, place = place, None
                return response, taken
            except NoAnswer as error:
                again = again and not error.broke_off
                left = deadline - time.monotonic()
                if left <= 0:
                    raise
            finally:
                if place is not None:
                    ask.disconnect.before = None
                    self._engines.done(place)
            known = offer.served.endpoints
            await self._finder.change(exchange.caller, head.model, known, seconds=left)
            left = deadline - time.monotonic()
            offer = await self._find(exchange, head, judge, seconds=left, is_open=True)

    async def _abort(
        self, meter: UsageMeter, place: EnginePlace, able: Endpoints, sent: Sent
    ) -> None:
        """Has the engine of a client that has left end its work, and say the usage if it can."""
        meter.client_left = True
        if meter.is_asked:
            await self._engines.abort(place, able, sent)

    def _body(self, ask: EngineRequest, offer: Offer, place: EnginePlace) -> bytes:
        salted = is_salted(ask.judge, offer)
        salt = self._salts.of(ask.exchange.caller.organization_id) if salted else ""
        return for_engine(
            ask.judge.body, ask.head, usage=ask.usage, salt=salt, background=place.background
        )

    def _place(self, ask: EngineRequest, offer: Offer) -> EnginePlace | None:
        # Engines that keep no prompts apart keep none at all.
        turns = 0
        if is_salted(ask.judge, offer):
            session = ask.exchange.headers.get(SESSION, b"")
            turns = ask.head.conversation(ask.exchange.caller.organization_id, session)
        return self._engines.place(offer.able, ask.asker(offer), conversation=turns)

    async def _wait(self, ask: EngineRequest, offer: Offer, deadline: float) -> EnginePlace:
        """A place at an engine, once one is free; a client that streams is told meanwhile."""
        version, path = offer.served.version_id, ask.exchange.path
        geography = offer.served.geography
        endpoints = partial(self._finder.endpoints, geography=geography)
        offers = partial(offered, endpoints, version, path, ask.judge)
        tell = partial(ask.comments.say, "the engines are busy") if ask.comments else None
        left = deadline - time.monotonic()
        # Not all engines of a version read images while its agents are of two releases.
        kind = (version, path, bool(ask.judge.images), geography)
        return await self._engines.wait(ask.asker(offer), kind, offers, seconds=left, tell=tell)

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
            try:
                named = named_version(exchange.headers, response.weight_version)
            except HttpError as error:
                # The engine took no notice of the demand, and has worked.
                meter.write(error.status, worked=True)
                raise
            headers += named + named_steps(response.steps)
            if named and exchange.status:
                # Its head has gone: a comment says it.
                said = b": %b: %b\n\n" % named[0]
                await exchange.send({"type": "http.response.body", "body": said, "more_body": True})
            kind = response.content_type or "application/json"
            headers.append((b"content-type", kind.encode("latin-1", "replace")))
            if kind.startswith("text/event-stream") or exchange.status:
                await stream(exchange, response, meter, disconnect, events, headers)
            else:
                await whole(exchange, response, meter, disconnect, headers)
        except EngineBroken as error:
            raise failed(error) from error
        finally:
            # Keeps the connection when the body was read to its end, else closes it,
            # which is how the engine learns that nobody listens any more.
            self._engines.done(place, response)
