"""Dialling back: one call for each connection, on channels apart from the control stream."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any

import grpc

from windlass.api.sessions.v1.sessions_pb2 import Chunk, Dial
from windlass.core import telemetry
from windlass.core.errors import AppError
from windlass.core.killpoints import reach
from windlass.metrics.agent import TUNNEL_CONNECTIONS
from windlass.tunnel.byte_stream import AttachStub, ByteStream, over_call
from windlass.tunnel.http1_bodies import MalformedHttp
from windlass_agent.tunnel.refusal import TargetRefused
from windlass_agent.tunnel.targets import Targets, Upstream

# Proxies on the way allow a little more than this on one connection.
CALLS_PER_CHANNEL = 100
MAX_CONNECTIONS = 2000
# The server waits as long for the agent to dial back.
DIAL_SECONDS = 10.0

log = telemetry.logger("tunnel")

Metadata = Callable[[], tuple[tuple[str, str], ...]]
OpenChannel = Callable[[], grpc.aio.Channel]


class TunnelChannel:
    """A channel for some of the connections."""

    def __init__(self, channel: grpc.aio.Channel):
        self.channel = channel
        self.stub = AttachStub(channel)
        self.calls = 0
        self.retired = False


class Attaching:
    """Every connection that is open, and the channels under them."""

    def __init__(self, open_channel: OpenChannel, metadata: Metadata, targets: Targets):
        self._open_channel = open_channel
        self._metadata = metadata
        self._targets = targets
        self._lanes: list[TunnelChannel] = []
        self._streams: dict[str, ByteStream] = {}
        self._dials = 0

    async def dial(self, dial: Dial) -> None:
        """Connects the target, dials back, and carries the bytes; never raises but to cancel."""
        self._dials += 1
        reach("tunnel.dialled")
        upstream = None
        try:
            if self._dials > MAX_CONNECTIONS:
                raise TargetRefused("The agent has reached its limit of open connections.")
            upstream = await self._targets.open(dial.target)
            await self._carry(dial.connection_id, upstream)
        except TargetRefused as refusal:
            await self._refuse(dial.connection_id, str(refusal))
        except (AppError, MalformedHttp, grpc.aio.AioRpcError, TimeoutError) as error:
            log.info("connection_broken", connection=dial.connection_id, error=str(error))
        except Exception as error:
            log.error("connection_failed", connection=dial.connection_id, exc_info=error)
        finally:
            self._dials -= 1
            if upstream is not None:
                upstream.close()

    def hang_up(self, connection_id: str) -> None:
        """Ends a connection that its call cannot end, since its bytes are not taken."""
        if stream := self._streams.get(connection_id):
            stream.abort()

    async def renew(self) -> None:
        """New connections go over new channels: the control stream has found another way."""
        for lane in tuple(self._lanes):
            lane.retired = True
            await self._leave(lane)

    async def close(self) -> None:
        """Closes every channel, and so ends every connection."""
        for lane in self._lanes:
            await lane.channel.close()
        self._lanes.clear()

    async def _carry(self, connection_id: str, upstream: Upstream) -> None:
        async with self._attached(Chunk(connection_id=connection_id)) as call:
            stream = self._streams[connection_id] = over_call(call)
            TUNNEL_CONNECTIONS.inc()
            reach("tunnel.attached")
            try:
                await upstream.serve(stream)
                await stream.finished()
                reach("tunnel.finished")
            finally:
                del self._streams[connection_id]
                TUNNEL_CONNECTIONS.dec()
                stream.abort()

    async def _refuse(self, connection_id: str, why: str) -> None:
        log.info("connection_refused", connection=connection_id, reason=why)
        with contextlib.suppress(grpc.aio.AioRpcError, TimeoutError):
            async with self._attached(Chunk(connection_id=connection_id, error=why)) as call:
                async with asyncio.timeout(DIAL_SECONDS):
                    await call.code()

    @contextlib.asynccontextmanager
    async def _attached(self, first: Chunk) -> AsyncIterator[Any]:
        lane = self._lane()
        lane.calls += 1
        try:
            call = lane.stub.Attach(metadata=self._metadata(), wait_for_ready=True)
            try:
                async with asyncio.timeout(DIAL_SECONDS):
                    await call.write(first)
            except TimeoutError:
                # A channel that does not come up holds nobody else.
                lane.retired = True
                call.cancel()
                raise
            yield call
        finally:
            lane.calls -= 1
            await self._leave(lane)

    def _lane(self) -> TunnelChannel:
        for lane in self._lanes:
            if not lane.retired and lane.calls < CALLS_PER_CHANNEL:
                return lane
        lane = TunnelChannel(self._open_channel())
        self._lanes.append(lane)
        return lane

    async def _leave(self, lane: TunnelChannel) -> None:
        if lane.retired and not lane.calls and lane in self._lanes:
            self._lanes.remove(lane)
            await lane.channel.close()
