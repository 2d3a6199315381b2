"""Forwarding of one admitted request through the tunnel and of its response."""

import asyncio
import contextlib
from collections.abc import Callable

from windlass.api.sessions.v1.sessions_pb2 import KubernetesTarget, Target
from windlass.core.errors import AppError, Unavailable
from windlass.sessions.access.admission import AdmittedRequest
from windlass.sessions.access.forwarding import response_head
from windlass.sessions.listener.client_connection import ClientConnection
from windlass.sessions.tunnel.domain import TunnelConnection
from windlass.sessions.tunnel.tunnels import Tunnels
from windlass.tunnel.http1 import (
    END_OF_HEAD,
    HEAD_BYTES,
    RequestHead,
    ResponseHead,
    parse_response,
)
from windlass.tunnel.http1_bodies import MalformedHttp

SWITCHING = 101
BODY_SECONDS = 30.0
# For what a client said last to take effect, before its connection is cut.
LEFT_SECONDS = 1.0
_closing: set[asyncio.Task[None]] = set()


def target_of(admitted: AdmittedRequest) -> Target:
    """The API server, as the account of the namespace that the request needs."""
    return Target(
        kubernetes=KubernetesTarget(
            namespace=admitted.namespace,
            level=admitted.allowed.level,
            user=admitted.caller.principal.user_id or admitted.identity.key_id,
        )
    )


class ClientExchange:
    """A client's request on a tunnel connection of its own."""

    def __init__(self, client: ClientConnection, head: RequestHead, admitted: AdmittedRequest):
        self._client = client
        self._head = head
        self._admitted = admitted
        self._upstream: TunnelConnection
        self._connected = self._switched = False
        self._error: AppError | None = None
        # Whether the client has got any of the answer, so that no other can be given.
        self.answered = False

    def abort(self, error: AppError | None = None) -> None:
        """Ends it at once, on both sides when the answer has begun."""
        self._error = self._error or error or Unavailable("The client disconnected.")
        if self._connected:
            self._upstream.abort(self._error)
        if self.answered:
            self._client.abort()

    async def run(self, tunnels: Tunnels, answered: Callable[[int], None]) -> bool:
        """Sends the request and relays the response; calls `answered` with its status.

        Answers whether the client's connection is good for another request. Raises the
        AppError that ended the tunnel's connection, MalformedHttp for an answer that is not
        HTTP, ConnectionError or TimeoutError when the client is gone.
        """
        self._client.on_left = self._client_left
        self._upstream = await tunnels.connect(self._admitted.cluster_id, target_of(self._admitted))
        self._connected = True
        try:
            if self._error is not None:
                raise self._error
            return await self._pass(answered)
        except BaseException:
            self._upstream.abort(self._error)
            raise
        finally:
            self._client.on_left = None
            # The client's next request need not wait for it.
            _closing.add(task := asyncio.create_task(self._upstream.close()))
            task.add_done_callback(_closing.discard)

    def _client_left(self) -> None:
        # Once the protocol has changed, what it said last is still to be passed on.
        if self._client.lost or not self._switched:
            self.abort()

    async def _pass(self, answered: Callable[[int], None]) -> bool:
        await self._upstream.write(self._admitted.head)
        async with asyncio.timeout(BODY_SECONDS):
            await self._send_body()
        response, rest = await self._response()
        self._switched = response.status == SWITCHING
        if self._switched and not self._head.upgrade:
            raise MalformedHttp("The API server switched protocols without being asked.")
        answered(response.status)
        if self._switched:
            await self._splice(response, rest)
            return False
        return await self._relay(response, rest)

    async def _send_body(self) -> None:
        left = self._head.length
        while left:
            piece = await self._client.read(left)
            if not piece:
                raise ConnectionResetError("the client disconnected in the middle of its request")
            left -= len(piece)
            await self._upstream.write(piece)

    async def _response(self) -> tuple[ResponseHead, bytes]:
        """The final head, and what came behind it."""
        data = b""
        while True:
            end = data.find(END_OF_HEAD)
            if end < 0:
                if len(data) > HEAD_BYTES:
                    raise MalformedHttp("The response's head is too long.")
                piece = await self._upstream.read()
                if not piece:
                    raise MalformedHttp("The API server closed the connection without a response.")
                data += piece
                continue
            end += len(END_OF_HEAD)
            response = parse_response(data[:end], method=self._head.method)
            if response.status >= 200 or response.status == SWITCHING:
                return response, data[end:]
            # One that is only for the time being, such as 103.
            data = data[end:]

    async def _relay(self, response: ResponseHead, data: bytes) -> bool:
        body = response.body
        # A client that asked for an upgrade may have sent bytes that are no request.
        closes = self._head.closes or bool(self._head.upgrade) or body.until_close
        self.answered = True
        await self._client.write(response_head(response, closes=closes))
        while not body.done:
            taken = body.take(data)
            if taken:
                await self._client.write(data[:taken] if taken < len(data) else data)
            if body.done:
                break
            data = await self._upstream.read()
            if not data:
                body.end()
        return not closes

    async def _splice(self, response: ResponseHead, data: bytes) -> None:
        self.answered = True
        await self._client.write(response_head(response, closes=True))
        up = asyncio.create_task(self._upward())
        try:
            if data:
                await self._client.write(data)
            while data := await self._upstream.read():
                await self._client.write(data)
        finally:
            up.cancel()
            await asyncio.wait([up])

    async def _upward(self) -> None:
        # What ends the tunnel's connection is raised where it is read.
        with contextlib.suppress(AppError):
            while data := await self._client.read():
                await self._upstream.write(data)
            await self._upstream.close_write()
            # No client of Kubernetes ends half of an upgraded connection: this one has left.
            await asyncio.sleep(LEFT_SECONDS)
            self._upstream.abort()
