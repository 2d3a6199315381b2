"""The token path: one inference request from its first byte to its record of usage."""

import asyncio
import time

from windlass.api.usage.v1 import usage_pb2
from windlass.core import telemetry
from windlass.core.errors import PermissionDenied
from windlass.gateway.asgi import ClientLeft, Headers, read_body, respond
from windlass.gateway.errors import HttpError, error_body
from windlass.gateway.exchange import Exchange
from windlass.gateway.inference.connection import Connection, EngineBroken
from windlass.gateway.inference.departure import Departure
from windlass.gateway.inference.engines import ERROR_BYTES, Engines, Pool
from windlass.gateway.inference.head import Head, read_head, with_usage
from windlass.gateway.inference.meter import CLIENT_LEFT, Meter
from windlass.gateway.inference.refusals import engine_error
from windlass.gateway.inference.routes import Endpoint
from windlass.gateway.inference.sse import Show, UsageFilter, usage_of
from windlass.gateway.inference.waiting import ModelFinder
from windlass.gateway.limits import Limiter
from windlass.gateway.spool import Spool

log = telemetry.logger("gateway.inference")
CHAT, COMPLETION = usage_pb2.USAGE_KIND_CHAT, usage_pb2.USAGE_KIND_COMPLETION
SCORE = usage_pb2.USAGE_KIND_SCORE
KINDS: dict[str, int] = {
    "/v1/chat/completions": CHAT,
    "/v1/completions": COMPLETION,
    "/v1/embeddings": usage_pb2.USAGE_KIND_EMBEDDING,
    "/v1/score": SCORE,
}
_GENERATES = (CHAT, COMPLETION)
_STREAM_HEADERS: Headers = [(b"cache-control", b"no-cache"), (b"x-accel-buffering", b"no")]
_PERMISSION = "inference.invoke"


class Inference:
    """Answers inference requests by the engines that have the model."""

    def __init__(
        self,
        finder: ModelFinder,
        engines: Engines,
        *,
        limiter: Limiter,
        spool: Spool,
        max_body_bytes: int,
    ):
        self._finder = finder
        self._engines = engines
        self._limiter = limiter
        self._spool = spool
        self._max_body_bytes = max_body_bytes

    async def handle(self, exchange: Exchange) -> None:
        """Answers one request of an authenticated caller; raises HttpError or AppError."""
        if _PERMISSION not in exchange.caller.permissions:
            raise PermissionDenied(f"This needs the permission {_PERMISSION}.")
        project_id = exchange.caller.require_project()
        body = await read_body(exchange.receive, exchange.headers, self._max_body_bytes)
        head = read_head(body)
        kind = KINDS.get(exchange.path, usage_pb2.USAGE_KIND_UNSPECIFIED)
        meter = Meter(self._spool, exchange, head.model, kind)
        if not self._limiter.enabled:
            await self._answer(exchange, head, body, meter, [])
            return
        limits = self._limiter.of(project_id)
        reserved = limits.reservation(head.estimate(len(body)))
        headers = limits.enter(reserved, time.monotonic())
        try:
            await self._answer(exchange, head, body, meter, headers)
        finally:
            limits.leave(reserved, meter.tokens)

    async def _answer(
        self,
        exchange: Exchange,
        head: Head,
        body: bytes,
        meter: Meter,
        headers: Headers,
    ) -> None:
        with Departure(exchange.receive) as departure:
            try:
                scores = meter.kind == SCORE if exchange.path in KINDS else None
                endpoints = await self._finder.find(exchange.caller, head.model, scores=scores)
                endpoints = _offering(endpoints, exchange.path)
                show = Show.ALL
                if head.stream and meter.kind in _GENERATES and not head.wants_every_usage:
                    show = Show.LAST if head.wants_usage else Show.NOTHING
                    body = with_usage(body, head)
                meter.open()
                self._finder.begin(exchange.caller, head.model)
                try:
                    response, pool = await self._engines.open(
                        endpoints, exchange.path, body, exchange.request_id
                    )
                    await self._relay(exchange, response, pool, meter, departure, show, headers)
                finally:
                    self._finder.end(exchange.caller, head.model)
            except HttpError as error:
                meter.write(error.status)
                raise
            except asyncio.CancelledError:
                meter.write(CLIENT_LEFT)
                if departure.happened:
                    raise ClientLeft from None
                raise

    async def _relay(
        self,
        exchange: Exchange,
        response: Connection,
        pool: Pool,
        meter: Meter,
        departure: Departure,
        show: Show,
        headers: Headers,
    ) -> None:
        try:
            if response.status >= 400:
                raise engine_error(response.status, await response.read(ERROR_BYTES))
            kind = response.content_type or "application/json"
            headers.append((b"content-type", kind.encode("latin-1", "replace")))
            if kind.startswith("text/event-stream"):
                await _stream(exchange, response, meter, departure, show, headers)
            else:
                await _whole(exchange, response, meter, departure, headers)
        finally:
            # Keeps the connection when the body was read to its end, else closes it,
            # which is how the engine learns that nobody listens any more.
            pool.done(response)


def _offering(endpoints: tuple[Endpoint, ...], path: str) -> tuple[Endpoint, ...]:
    """Those that serve the path; raises HttpError 404 when none does."""
    if path in KINDS and KINDS[path] != SCORE:
        return endpoints
    able = tuple(endpoint for endpoint in endpoints if path in endpoint.routes)
    if not able:
        raise HttpError(404, f"The model does not offer {path}.", param="model")
    return able


async def _whole(
    exchange: Exchange,
    response: Connection,
    meter: Meter,
    departure: Departure,
    headers: Headers,
) -> None:
    try:
        body = await response.read()
    except EngineBroken as error:
        raise _broken() from error
    meter.first_byte()
    meter.usage = usage_of(body)
    meter.write(response.status)
    departure.stop()
    await respond(exchange.send, response.status, headers, body)


async def _stream(
    exchange: Exchange,
    response: Connection,
    meter: Meter,
    departure: Departure,
    show: Show,
    headers: Headers,
) -> None:
    events, send = UsageFilter(show), exchange.send
    status = response.status
    headers += _STREAM_HEADERS
    await send({"type": "http.response.start", "status": status, "headers": headers})
    try:
        while data := await response.readany():
            meter.first_byte()
            if shown := events.feed(data):
                await send({"type": "http.response.body", "body": shown, "more_body": True})
        last = events.finish()
    except EngineBroken as error:
        log.warning("an engine broke off a stream", error=repr(error))
        broken = _broken()
        last = b"data: %b\n\n" % error_body(broken.message, kind=broken.kind, code=broken.code)
    finally:
        # Of what the engine has counted so far, whoever ends the stream.
        meter.usage = events.usage
    meter.write(status)
    departure.stop()
    await send({"type": "http.response.body", "body": last})


def _broken() -> HttpError:
    return HttpError(
        502, "The engine broke off its answer.", kind="server_error", code="engine_failed"
    )
