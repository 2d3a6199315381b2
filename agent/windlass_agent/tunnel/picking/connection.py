"""A gateway's connection to a replica, each of whose requests may go to another one of its kind."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

from windlass.core.errors import AppError
from windlass.metrics.agent import PICKS
from windlass.tunnel.byte_stream import ByteStream, broken
from windlass.tunnel.http1 import RequestHead, first, parse_request, parse_response
from windlass.tunnel.http1_bodies import MalformedHttp
from windlass_agent.tunnel.answers import pass_body, read_head
from windlass_agent.tunnel.picking.chooser import (
    BODY_BYTES,
    Asked,
    ChosenReplica,
    ReplicaChooser,
)
from windlass_agent.tunnel.sockets import Socket

# For the gateway to end a request that was answered before it was complete.
LINGER_SECONDS = 10.0
# To a replica that a picker named: the gateway's own is there already.
CONNECT_SECONDS = 1.0
_SWITCHING = 101


class PickedConnection:
    """Carries one request after another, from its first byte to its answer's last."""

    def __init__(
        self,
        workload_id: str,
        socket: Socket,
        *,
        chooser: ReplicaChooser,
        connect: Callable[[str], Awaitable[Socket]],
    ):
        """`socket` is open to the gateway's choice; `connect` opens others and raises OSError."""
        self._workload_id = workload_id
        # The gateway's choice, and the replica that was picked last.
        self._sockets = {workload_id: socket}
        self._chooser = chooser
        self._connect = connect
        self._keeps = True
        self._closed = False

    async def serve(self, stream: ByteStream) -> None:
        """Carries requests until the gateway or a replica ends; raises AppError, MalformedHttp."""
        # A call that waits for a socket does not see that the stream was cut.
        stream.when_cut(lambda _: self.close())
        rest = b""
        while self._keeps:
            head, rest = await read_head(stream.read, rest)
            if not head:
                break
            rest = await self._exchange(stream, head, rest)
        await stream.close_write()

    def close(self) -> None:
        """Ends the connections to replicas at once, and with them what is open there."""
        self._closed = True
        while self._sockets:
            self._sockets.popitem()[1].abort()

    async def _exchange(self, stream: ByteStream, head: bytes, rest: bytes) -> bytes:
        """Carries a request and its answer; returns what came behind the request."""
        request = parse_request(head)
        chosen, head, rest, left = await self._choose(stream, request, head, rest)
        try:
            socket, chosen = await self._open(chosen)
            sending = asyncio.create_task(_send(stream, socket, head, rest, left))
            # An answer may take long, and needs nothing of the request.
            head = rest = b""
            try:
                await self._answer(stream, socket, request, chosen)
                # A request that was answered early goes on until the gateway has said it all.
                async with asyncio.timeout(LINGER_SECONDS):
                    return await sending
            finally:
                sending.cancel()
                await asyncio.gather(sending, return_exceptions=True)
        finally:
            if chosen.picked is not None:
                chosen.picked.dropped()

    async def _choose(
        self, stream: ByteStream, request: RequestHead, head: bytes, rest: bytes
    ) -> tuple[ChosenReplica, bytes, bytes, int]:
        """The replica, what to send to it, what came behind that, and bytes that are to come."""
        if request.length > BODY_BYTES:
            PICKS.labels("unread").inc()
            return ChosenReplica(self._workload_id), head, rest, request.length
        body, rest = await _body(stream, rest, request.length)
        request_id = first(request.headers, "x-request-id")
        asked = Asked(self._workload_id, request.target, request_id, body)
        return await self._chooser.choose(asked), head + body, rest, 0

    async def _open(self, choice: ChosenReplica) -> tuple[Socket, ChosenReplica]:
        """A connection to the choice, or to the gateway's where that cannot be reached."""
        if choice.workload_id != self._workload_id:
            try:
                async with asyncio.timeout(CONNECT_SECONDS):
                    socket = await self._socket(choice.workload_id)
            except OSError as error:
                self._chooser.unreachable(choice, error)
                choice = ChosenReplica(self._workload_id)
            else:
                PICKS.labels("moved").inc()
                return socket, choice
        try:
            return await self._socket(self._workload_id), choice
        except OSError as error:
            raise broken(f"The replica does not answer: {error}.") from error

    async def _socket(self, workload_id: str) -> Socket:
        if self._closed:
            raise broken()
        kept = self._sockets.pop(workload_id, None)
        if kept is not None and not kept.idle:
            kept.close()
            kept = None
        socket = kept or await self._connect(workload_id)
        if self._closed:
            socket.abort()
            raise broken()
        for other in self._sockets.keys() - {self._workload_id}:
            self._sockets.pop(other).close()
        self._sockets[workload_id] = socket
        return socket

    async def _answer(
        self, stream: ByteStream, socket: Socket, request: RequestHead, choice: ChosenReplica
    ) -> None:
        data = b""
        while True:
            head, data = await read_head(socket.read, data)
            if not head:
                raise broken("The replica closed the connection.")
            response = parse_response(head, method=request.method)
            if response.status >= 200:
                break
            if response.status == _SWITCHING:
                raise MalformedHttp("The replica changes the protocol.")
            await stream.write(head)
        picked = choice.picked
        if picked is not None:
            picked.answered(response.status, first(response.headers, "content-type"))
        closes = "close" in first(response.headers, "connection").lower()
        self._keeps = not (closes or response.body.until_close)
        await pass_body(socket, stream, head, data, response.body)
        if picked is not None:
            picked.ended()


async def _body(stream: ByteStream, rest: bytes, length: int) -> tuple[bytes, bytes]:
    """A request's body of which `rest` has come, and what came behind it."""
    parts, size = [rest], len(rest)
    while size < length:
        data = await stream.read()
        if not data:
            raise MalformedHttp("The request ended before it was complete.")
        parts.append(data)
        size += len(data)
    whole = b"".join(parts)
    return whole[:length], whole[length:]


async def _send(stream: ByteStream, socket: Socket, sent: bytes, rest: bytes, left: int) -> bytes:
    """Sends what has come, and `left` more bytes; returns those behind them."""
    while True:
        # An answer that came early needs no more of it; else its reader finds what is wrong.
        with contextlib.suppress(AppError):
            await socket.write(sent)
        if not left:
            return rest
        try:
            data = rest or await stream.read()
            if not data:
                raise MalformedHttp("The request ended before it was complete.")
        except (AppError, MalformedHttp):
            # Nobody answers a part of it.
            socket.abort()
            raise
        sent, rest = data[:left], data[left:]
        left -= len(sent)
