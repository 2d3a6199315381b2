"""One HTTP exchange with the API server over one stream of the tunnel."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

from windlass.core.errors import AppError
from windlass.tunnel.byte_stream import ByteStream, at_once, broken
from windlass.tunnel.http1 import (
    END_OF_HEAD,
    HEAD_BYTES,
    RequestHead,
    first,
    parse_request,
    parse_response,
)
from windlass.tunnel.http1_bodies import MalformedHttp
from windlass_agent.tunnel.answers import pass_body, read_head
from windlass_agent.tunnel.pool import TargetConnectionPool
from windlass_agent.tunnel.sockets import Socket

SWITCHING = 101
# For the asking side to end its own after the answer; and for the answer's rest after the
# asking side ended on a connection that cannot be ended by halves.
LINGER_SECONDS = 10.0


class TunnelExchange:
    """A request in, its answer out, and what follows a 101; nothing else passes."""

    def __init__(
        self,
        pool: TargetConnectionPool,
        socket: Socket,
        used: bool,
        head: Callable[[RequestHead], Awaitable[bytes]],
    ):
        """`used` says that the socket served before, `head` writes the head that is sent."""
        self._pool = pool
        self._socket = socket
        self._used = used
        self._head = head
        self._sent = b""
        self._body_sent = self._answered = self._kept = self._released = False
        self._switched: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

    async def serve(self, stream: ByteStream) -> None:
        """Carries the exchange to its end; raises AppError or MalformedHttp."""
        # A call that waits for the socket does not see that the stream was cut.
        stream.when_cut(lambda _: self.close())
        request, rest = await _request(stream)
        self._sent = await self._head(request)
        with contextlib.suppress(AppError):
            # Where it is closed already, the reader of the answer finds out and asks again.
            await self._socket.write(self._sent)
        asking = asyncio.create_task(self._ask(stream, request, rest))
        answering = asyncio.create_task(self._answer(stream, request))
        try:
            done, _ = await asyncio.wait((asking, answering), return_when=asyncio.FIRST_COMPLETED)
            if asking in done:
                asking.result()
                upgraded = self._switched.done() and self._switched.result()
                await asyncio.wait((answering,), timeout=LINGER_SECONDS if upgraded else None)
                # Over TLS the API server has not heard that the asking side ended.
                self.close()
                await answering
            answering.result()
            if not asking.done():
                await asyncio.wait((asking,), timeout=LINGER_SECONDS)
        finally:
            for task in (asking, answering):
                task.cancel()
            await asyncio.gather(asking, answering, return_exceptions=True)

    def close(self) -> None:
        """Lets the connection go, to the next exchange if this one was whole."""
        if self._released:
            return
        self._released = True
        if not self._answered:
            self._socket.abort()
        elif self._body_sent and self._kept and self._socket.idle:
            self._pool.give(self._socket)
        else:
            self._socket.close()

    async def _ask(self, stream: ByteStream, request: RequestHead, rest: bytes) -> None:
        left, whole = request.length, True
        while left:
            data = rest or await stream.read()
            if not data:
                raise MalformedHttp("The request ended before it was complete.")
            piece, rest = data[:left], data[left:]
            left -= len(piece)
            try:
                await self._socket.write(piece)
            except AppError:
                # An answer that came early needs no more of it, and the asking side goes on
                # until it has said all; otherwise the reader of the answer finds what is wrong.
                whole = False
        self._body_sent = whole
        if request.upgrade and await self._switched:
            await self._forward(stream, rest)
        elif rest or await stream.read():
            raise MalformedHttp("Unexpected bytes follow the request.")

    async def _forward(self, stream: ByteStream, rest: bytes) -> None:
        """Forwards the asking side's bytes after a 101."""
        while data := rest or await stream.read():
            rest = b""
            if not self._released:
                await self._socket.write(data)
        if not self._released:
            await self._socket.close_write()

    async def _answer(self, stream: ByteStream, request: RequestHead) -> None:
        data = b""
        while True:
            head, data = await self._response(data, request)
            response = parse_response(head, method=request.method)
            if response.status >= 200 or response.status == SWITCHING:
                break
            await stream.write(head)
        if response.status == SWITCHING:
            self._switched.set_result(True)
            await stream.write(head + data)
            self._socket.pass_on(at_once(stream))
            while data := await self._socket.read():
                await stream.write(data)
        else:
            self._switched.set_result(False)
            self._kept = "close" not in first(response.headers, "connection").lower()
            await pass_body(self._socket, stream, head, data, response.body)
        self._answered = True
        self.close()
        await stream.close_write()

    async def _response(self, data: bytes, request: RequestHead) -> tuple[bytes, bytes]:
        """The next head of an answer and what came behind it."""
        while (end := data.find(END_OF_HEAD)) < 0:
            if len(data) > HEAD_BYTES:
                raise MalformedHttp("The answer's head is too long.")
            more = await self._socket.read()
            if not more:
                await self._again(data, request)
            data += more
        end += len(END_OF_HEAD)
        return data[:end], data[end:]

    async def _again(self, data: bytes, request: RequestHead) -> None:
        """Asks once more where a connection that was kept turned out to be closed."""
        if data or not self._used or request.method not in ("GET", "HEAD") or request.length:
            raise broken("The cluster's API server closed the connection.")
        self._used = False
        self._socket.abort()
        try:
            self._socket = await self._pool.fresh()
        except OSError as error:
            raise broken(f"The cluster's API server does not answer: {error}.") from error
        await self._socket.write(self._sent)


async def _request(stream: ByteStream) -> tuple[RequestHead, bytes]:
    """The request's head, and what came behind it."""
    head, rest = await read_head(stream.read)
    if not head:
        raise MalformedHttp("The head ended before it was complete.")
    return parse_request(head), rest
