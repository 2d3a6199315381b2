"""Relay of an engine's answer to the client, whole or as events."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

from windlass.core import telemetry
from windlass.gateway.asgi import Headers, respond
from windlass.gateway.errors import HttpError
from windlass.gateway.exchange import HttpExchange
from windlass.gateway.inference.disconnect_watch import DisconnectWatch
from windlass.gateway.inference.engines import (
    EngineBroken,
    EngineConnection,
    engine_failed,
    failed,
)
from windlass.gateway.inference.feeding import Consent
from windlass.gateway.inference.meter import UsageMeter
from windlass.gateway.inference.sse import EventTooLong, UsageFilter
from windlass.gateway.usage.token_usage import usage_of

log = telemetry.logger("gateway.inference")
_STREAM_HEADERS: Headers = [(b"cache-control", b"no-cache"), (b"x-accel-buffering", b"no")]
_SSE = (b"content-type", b"text/event-stream; charset=utf-8")
# Of silence while a request waits; proxies and clients close what is quiet for a minute.
COMMENT_SECONDS = 5.0
# The first comment, and one that says something new, comes this soon.
LOOK_SECONDS = 1.0
# Of an answer that is not streamed: 2,048 embeddings of 4,096 numbers have about 100 MB.
ANSWER_BYTES = 128 * 2**20
T = TypeVar("T")


async def whole(
    exchange: HttpExchange,
    response: EngineConnection,
    meter: UsageMeter,
    disconnect: DisconnectWatch,
    headers: Headers,
    consent: Consent | None = None,
) -> None:
    """Answers with the engine's whole body; raises EngineBroken, HttpError 502 if too long.

    With a consent it is kept before the client has it, and by no client that has left.
    """
    body = await response.read(ANSWER_BYTES + 1)
    if len(body) > ANSWER_BYTES:
        raise _too_long("answer")
    shown = consent.shown(body) if consent is not None else body
    meter.first_byte()
    meter.answered(len(shown))
    meter.report(usage_of(shown))
    meter.write(response.status)
    disconnect.stop()
    if not disconnect.happened:
        if consent is not None:
            headers += await consent.keep(body)
        await respond(exchange.send, response.status, headers, shown)


async def stream(
    exchange: HttpExchange,
    response: EngineConnection,
    meter: UsageMeter,
    disconnect: DisconnectWatch,
    events: UsageFilter,
    headers: Headers,
) -> None:
    """Answers with the engine's events, an error event last if it broke off."""
    send = exchange.send
    meter.streams = True
    status = response.status
    if not exchange.status:
        headers += _STREAM_HEADERS
        await send({"type": "http.response.start", "status": status, "headers": headers})
    try:
        while data := await response.readany():
            meter.first_byte()
            meter.answered(len(data))
            if shown := events.feed(data):
                await send({"type": "http.response.body", "body": shown, "more_body": True})
        last = events.finish()
    except (EngineBroken, EventTooLong) as error:
        log.warning("engine_stream_broken", error=repr(error))
        told = failed(error) if isinstance(error, EngineBroken) else _too_long("event")
        last = b"data: %b\n\n" % told.body()
    finally:
        # Of what the engine has counted so far, however the stream ends.
        meter.report(events.usage)
    meter.write(status)
    disconnect.stop()
    await send({"type": "http.response.body", "body": last})


class StreamComments:
    """Comments to a client that streams and waits, of what it waits for."""

    def __init__(self, exchange: HttpExchange, headers: Headers):
        self._exchange = exchange
        self._headers = headers
        self._said, self._due = "", 0.0

    async def say(self, words: str) -> None:
        """Says it, unless it was said a moment ago; begins the answer if need be."""
        if words == self._said and time.monotonic() < self._due:
            return
        self._said, self._due = words, time.monotonic() + COMMENT_SECONDS
        send = self._exchange.send
        if not self._exchange.status:
            start = [_SSE, *self._headers, *_STREAM_HEADERS]
            await send({"type": "http.response.start", "status": 200, "headers": start})
        comment = f": {words}\n\n".encode()
        await send({"type": "http.response.body", "body": comment, "more_body": True})


async def with_comments(
    awaited: Awaitable[T], comments: StreamComments | None, waits_for: Callable[[], str]
) -> T:
    """Returns what is awaited, of which nothing needs to be given back.

    A client that streams is told meanwhile what it waits for.
    """
    if comments is None:
        return await awaited
    task = asyncio.ensure_future(awaited)
    try:
        while not (await asyncio.wait({task}, timeout=LOOK_SECONDS))[0]:
            await comments.say(waits_for())
        return task.result()
    finally:
        task.cancel()


async def end_stream(exchange: HttpExchange, error: HttpError) -> None:
    """Ends a stream that has begun with an error event."""
    await exchange.send({"type": "http.response.body", "body": b"data: %b\n\n" % error.body()})


def _too_long(what: str) -> HttpError:
    return engine_failed(f"sent an {what} that is too long")
