"""The handler of an inference request, from its first byte to its usage record."""

import asyncio
from collections.abc import Sequence
from functools import partial

from windlass.api.usage.v1 import usage_pb2
from windlass.core import telemetry
from windlass.core.errors import PermissionDenied
from windlass.gateway.asgi import ClientLeft, Headers, read_body
from windlass.gateway.errors import HttpError, to_http
from windlass.gateway.exchange import HttpExchange
from windlass.gateway.inference.disconnect_watch import DisconnectWatch
from windlass.gateway.inference.engines import (
    ENGINE_FAILED,
    EngineBroken,
    EngineConnection,
    EnginePlace,
    Engines,
    demand_line,
    failed,
    named_steps,
    named_version,
)
from windlass.gateway.inference.feeding import Consent, Feeding
from windlass.gateway.inference.head import (
    BodyJudge,
    CacheSalts,
    Head,
    read_head,
    renamed,
)
from windlass.gateway.inference.images.inlining import Images
from windlass.gateway.inference.meter import CLIENT_LEFT, UsageBounds, UsageMeter
from windlass.gateway.inference.names import ServedCheckpoints
from windlass.gateway.inference.offers import (
    CHAT,
    GENERATES,
    KINDS,
    Offer,
)
from windlass.gateway.inference.opening import EngineOpener, EngineRequest
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
_PERMISSION = "inference.invoke"
ERROR_BYTES = 1 << 20


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
        feeding: Feeding,
        max_body_bytes: int,
    ):
        self._finder = finder
        self._engines = engines
        self._opener = EngineOpener(finder, engines, salts)
        self._limiter = limiter
        self._spool = spool
        self._salts = salts
        self._images = images
        self._checkpoints = checkpoints
        self._feeding = feeding
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
            named = await self._named(exchange, head, body, places, bounds)
            await self._answer(exchange, head, *named, [])
            return
        limits = self._limiter.of(project_id)
        reserved = limits.reservation(head.estimate(read, len(places)))
        headers = await self._limiter.enter(limits, reserved)
        used = 0
        try:
            # Who may ask no more asks no other service either.
            judge, meter, consent = await self._named(exchange, head, body, places, bounds)
            try:
                await self._answer(exchange, head, judge, meter, consent, headers)
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
    ) -> tuple[BodyJudge, UsageMeter, Consent | None]:
        """Returns what judges, counts and keeps the request, which names a model from here on."""
        model = await self._checkpoints.model_of(exchange.caller, head.model)
        if model != head.model:
            head.model, body = model, renamed(body, model)
        consent = await self._feeding.consent(exchange, head, body, images=bool(places))
        if consent is not None:
            body = consent.body
        judge = BodyJudge(exchange.path, body, model, places)
        return judge, UsageMeter(self._spool, exchange, model, bounds), consent

    async def _answer(
        self,
        exchange: HttpExchange,
        head: Head,
        judge: BodyJudge,
        meter: UsageMeter,
        consent: Consent | None,
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
                    response, place = await self._opener.open(ask, offer)
                    choices = head.choices if judge.check.counts_each_choice else 0
                    events = UsageFilter(show, choices=choices)
                    await self._relay(
                        exchange, response, place, meter, disconnect, events, consent, headers
                    )
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
        exchange, judge = ask.exchange, ask.judge
        found = self._opener.find(ask)
        if ask.comments is None:
            offer = await found
        else:
            waits_for = partial(self._finder.waits_for, exchange.caller, ask.head.model)
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

    async def _relay(
        self,
        exchange: HttpExchange,
        response: EngineConnection,
        place: EnginePlace,
        meter: UsageMeter,
        disconnect: DisconnectWatch,
        events: UsageFilter,
        consent: Consent | None,
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
                await whole(exchange, response, meter, disconnect, headers, consent)
        except EngineBroken as error:
            raise failed(error) from error
        finally:
            # Keeps the connection when the body was read to its end, else closes it,
            # which is how the engine learns that nobody listens any more.
            self._engines.done(place, response)
