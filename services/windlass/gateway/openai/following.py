"""Live streams for clients: events and logs of a job."""

import asyncio
from collections.abc import AsyncIterable, AsyncIterator
from typing import Any, TypeVar

import grpc
import orjson
from fastapi.responses import StreamingResponse
from starlette.types import Send

from windlass.api.jobs.v1 import jobs_pb2 as pb
from windlass.core.errors import PermissionDenied, Unavailable
from windlass.gateway.errors import to_http
from windlass.gateway.exchange import HttpExchange
from windlass.gateway.openai.rendering import render_event

Item = TypeVar("Item")
Call = grpc.aio.UnaryStreamCall[Any, Any]
# A comment now and then keeps proxies from closing a quiet stream.
BEAT_SECONDS = 15.0
# A key that is deleted is one no longer within a second.
CHECK_SECONDS = 0.5
# How long a browser's EventSource waits before it connects anew.
RETRY_DELAY_MS = 1000


class Followed(StreamingResponse):
    """The answer that a call streams; the call ends with it, whichever side leaves first.

    A body that is left while it sends would end only when its generator is collected.
    """

    def __init__(self, call: Call, content: AsyncIterator[bytes], **options: Any):
        super().__init__(content, **options)
        self._call = call

    async def stream_response(self, send: Send) -> None:
        """Sends the body."""
        try:
            await super().stream_response(send)
        finally:
            self._call.cancel()


async def while_allowed(
    exchange: HttpExchange, permission: str, items: AsyncIterable[Item]
) -> AsyncIterator[Item]:
    """The items for as long as the caller's key opens the same door.

    Raises Unauthenticated or PermissionDenied within a second of its end.
    """
    if exchange.held is not None:
        exchange.held.is_minded = True
    iterator = aiter(items)
    coming = asyncio.ensure_future(_step(iterator))
    try:
        while True:
            done, _ = await asyncio.wait({coming}, timeout=CHECK_SECONDS)
            await _require(exchange, permission)
            if done:
                item = coming.result()
                if item is None:
                    return
                yield item
                coming = asyncio.ensure_future(_step(iterator))
    finally:
        coming.cancel()


async def _require(exchange: HttpExchange, permission: str) -> None:
    if exchange.identify is None:
        raise PermissionDenied("Authentication required.")
    try:
        caller = await exchange.identify()
    except Unavailable:
        # Nothing was said against the key.
        return
    if not caller.may(permission) or caller.project_id != exchange.caller.project_id:
        raise PermissionDenied(f"This needs the permission {permission}.")


async def server_sent(events: AsyncIterable[pb.Event]) -> AsyncIterator[bytes]:
    """Events as server-sent ones, up to `[DONE]`; a failure is an event as well.

    Each has its id, which an EventSource sends as `Last-Event-ID` when it connects anew.
    """
    iterator = aiter(events)
    coming = asyncio.ensure_future(_step(iterator))
    try:
        yield b"retry: %d\n\n" % RETRY_DELAY_MS
        while True:
            done, _ = await asyncio.wait({coming}, timeout=BEAT_SECONDS)
            if not done:
                yield b": still here\n\n"
                continue
            event = coming.result()
            if event is None:
                break
            data = orjson.dumps(render_event(event))
            yield b"id: %b\ndata: %b\n\n" % (event.id.encode(), data)
            coming = asyncio.ensure_future(_step(iterator))
        yield b"data: [DONE]\n\n"
    except Exception as error:
        yield b"data: %b\n\n" % to_http(error).body()
    finally:
        coming.cancel()


async def _step(iterator: AsyncIterator[Item]) -> Item | None:
    return await anext(iterator, None)


async def log_bytes(chunks: AsyncIterable[pb.LogChunk]) -> AsyncIterator[bytes]:
    """The bytes of a log."""
    async for chunk in chunks:
        if chunk.data:
            yield chunk.data
