"""A connection to an engine: HTTP/1.1 at little more than the cost of its bytes.

Of our own because a general client takes more processor time for a request than
everything else here together; see docs/benchmarks.md.
"""

import asyncio
import math
from typing import Any

import httptools

from windlass.gateway.inference.engines.weight_versions import HEADER, STEPS_HEADER
from windlass.gateway.inference.routes import DirectAddress

# An engine may compute for long before it answers; its process's end closes the socket.
SILENCE_SECONDS = 900.0
# What may wait for a client that reads slowly, before the engine is held up too.
BUFFER_BYTES = 256 * 1024


class EngineBroken(Exception):
    """The connection ended, or sent invalid HTTP, before the response was complete."""


class EngineSilent(EngineBroken):
    """The engine sent nothing for too long; it may still compute."""


class EngineConnection(asyncio.Protocol):
    """Carries one exchange at a time; a response has `status`, `content_type` and body.

    `weight_version` is what it names as that of its weights, and `steps` the optimizer's steps that
    it says it saw; empty for none.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop):
        self._loop = loop
        self._parser: Any = httptools.HttpResponseParser(self)
        self._transport: Any = None
        self._chunks: list[bytes] = []
        self._size = 0
        self._paused = False
        self._waiter: asyncio.Future[None] | None = None
        self._failure: EngineBroken | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._heard = 0.0
        self._answered = self._framed = self._keeps = False
        # Between exchanges a connection is whole; `idle_since` and `door` are the pool's.
        self.whole = True
        self.door: DirectAddress | None = None
        self.idle_since = 0.0
        self.status = 0
        self.content_type = ""
        self.weight_version = self.steps = b""

    @property
    def reusable(self) -> bool:
        """True if the connection can be used for another exchange.

        What nobody has read yet is another client's answer, and would come before the next one.
        """
        read = self.whole and not self._chunks
        return read and self._keeps and self._failure is None

    @property
    def broke_off(self) -> bool:
        """True if the engine ended the exchange before its response was complete."""
        return self._failure is not None and not self.whole

    async def exchange(self, request: bytes) -> None:
        """Sends a whole request and returns with the status read; raises EngineBroken."""
        self.whole = self._answered = self._framed = self._keeps = False
        self._heard = self._loop.time()
        if self._timer is None:
            self._timer = self._loop.call_later(SILENCE_SECONDS, self._check_silence)
        self._transport.write(request)
        while not self._answered:
            await self._wait()

    async def begun(self) -> None:
        """Returns once a part of the body can be read, or its end. Raises EngineBroken."""
        while not self._chunks and not self.whole:
            await self._wait()

    async def readany(self) -> bytes:
        """The next bytes of the body, at least one; empty at its end. Raises EngineBroken."""
        while not self._chunks:
            if self.whole:
                return b""
            await self._wait()
        chunks = self._chunks
        data = chunks[0] if len(chunks) == 1 else b"".join(chunks)
        self._chunks, self._size = [], 0
        if self._paused:
            self._paused = False
            self._transport.resume_reading()
        return data

    async def read(self, most: float = math.inf) -> bytes:
        """The whole body, or its beginning once there are `most` bytes. Raises EngineBroken."""
        body = await self.readany()
        if self.whole and not self._chunks:
            return body
        parts = bytearray(body)
        while len(parts) < most and (data := await self.readany()):
            parts += data
        return bytes(parts)

    def rest(self) -> None:
        """Ends the exchange; an incomplete one closes the connection, which cancels it."""
        if not self.reusable:
            self.close()

    def close(self) -> None:
        """Ends the connection at once."""
        self._keeps = False
        self._stop_timer()
        if self._transport is not None:
            self._transport.abort()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    async def _wait(self) -> None:
        if self._failure is not None:
            raise self._failure
        self._waiter = self._loop.create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _fail(self, failure: EngineBroken) -> None:
        self._failure = self._failure or failure
        self.close()
        self._wake()

    def _check_silence(self) -> None:
        self._timer = None
        if self.whole:
            # The next exchange begins another; a timer for each would take a fiftieth of a chat.
            return
        left = self._heard + SILENCE_SECONDS - self._loop.time()
        if left <= 0:
            self._fail(EngineSilent("it did not respond in time"))
        else:
            self._timer = self._loop.call_later(left, self._check_silence)

    # What the transport says.

    def connection_made(self, transport: Any) -> None:
        """See asyncio."""
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """See asyncio."""
        self._heard = self._loop.time()
        if self.whole:
            self._fail(EngineBroken("it sent a response without a request"))
            return
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self._fail(EngineBroken(f"its response is not HTTP: {error}"))
            return
        self._wake()

    def connection_lost(self, error: Exception | None) -> None:
        """See asyncio."""
        self._keeps = False
        if self._answered and not self._framed and error is None:
            # A body without a length ends with its connection.
            self.whole = True
        self._failure = self._failure or EngineBroken(repr(error) if error else "it closed")
        self._wake()

    # What the parser says.

    def on_header(self, name: bytes, value: bytes) -> None:
        """See httptools."""
        name = name.lower()
        if name == b"content-type":
            self.content_type = value.decode("latin-1")
        elif name == HEADER:
            self.weight_version = value
        elif name == STEPS_HEADER:
            self.steps = value
        elif name in (b"content-length", b"transfer-encoding"):
            self._framed = True

    def on_message_begin(self) -> None:
        """See httptools."""
        self.content_type, self.weight_version, self.steps = "", b"", b""

    def on_headers_complete(self) -> None:
        """See httptools."""
        self.status = self._parser.get_status_code()
        # 100 Continue and its like announce the answer.
        self._answered = self.status >= 200

    def on_body(self, data: bytes) -> None:
        """See httptools."""
        self._chunks.append(data)
        self._size += len(data)
        if self._size > BUFFER_BYTES and not self._paused:
            self._paused = True
            self._transport.pause_reading()

    def on_message_complete(self) -> None:
        """See httptools."""
        if self._answered:
            self.whole = True
            self._keeps = self._parser.should_keep_alive()
