"""Lanes: gRPC calls of `Frames`, opened as the calls over them need more."""

import asyncio
from collections.abc import Awaitable, Callable
from contextvars import Context
from typing import Any

import grpc

from windlass.api.sessions.v1.sessions_pb2 import Chunk
from windlass.core import telemetry
from windlass.core.errors import AppError
from windlass.tunnel.byte_stream import StreamCall, broken
from windlass.tunnel.frames import as_it_is
from windlass.tunnel.multiplexed_call import MultiplexedCall
from windlass.tunnel.multiplexer import Multiplexer

# A lane has one window of HTTP/2, and what is lost with it is lost for all of them.
CALLS_PER_LANE = 100
# For a server to answer a new lane.
OPEN_SECONDS = 10.0

log = telemetry.logger("tunnel")

# A call of `Carry`, and what to do once it has ended.
Start = Callable[[], tuple[StreamCall, Callable[[], Awaitable[object]]]]


class Lanes:
    """Opens a lane whenever those that are open are full or retired."""

    def __init__(self, start: Start, *, paces: bool = False):
        """`paces` as a multiplexer does: see there."""
        self._start = start
        self._paces = paces
        self._lanes: dict[Multiplexer, asyncio.Task[None]] = {}

    async def open(self, first: Chunk) -> MultiplexedCall:
        """A call that begins with a chunk, on a lane that the server has answered.

        Raises AppError.
        """
        while True:
            lane = self._lane()
            try:
                async with asyncio.timeout(OPEN_SECONDS):
                    await lane.opened()
            except TimeoutError:
                # A line that does not come up holds nobody else.
                lane.abort(broken("The server does not answer."))
                raise broken("The server does not answer.") from None
            if _has_room(lane):
                return lane.open(first)

    def renew(self) -> None:
        """Leaves every lane to the calls that it has: new ones go another way."""
        for lane in tuple(self._lanes):
            lane.retire()

    async def close(self) -> None:
        """Closes every lane, and so ends every call."""
        carrying = list(self._lanes.values())
        for task in carrying:
            task.cancel()
        await asyncio.gather(*carrying, return_exceptions=True)

    def _lane(self) -> Multiplexer:
        for lane in self._lanes:
            if _has_room(lane):
                return lane
        # It outlives the request that needs it first, and says nothing of it.
        context = Context()
        call, close = context.run(self._start)
        lane = Multiplexer(call, paces=self._paces)
        self._lanes[lane] = asyncio.create_task(self._carry(lane, close), context=context)
        return lane

    async def _carry(self, lane: Multiplexer, close: Callable[[], Awaitable[object]]) -> None:
        try:
            await lane.run()
        except (AppError, grpc.aio.AioRpcError) as error:
            log.info("lane_lost", error=str(error))
        except Exception as error:
            log.error("lane_failed", exc_info=error)
        finally:
            del self._lanes[lane]
            await close()


def carry(channel: grpc.aio.Channel, service: str) -> Callable[..., Any]:
    """The method `Carry` of a service of sessions, on a channel."""
    found: Callable[..., Any] = channel.stream_stream(
        f"/windlass.api.sessions.v1.{service}/Carry",
        request_serializer=as_it_is,
        response_deserializer=as_it_is,
    )
    return found


class CarryStub:
    """`SessionsInternalService.Carry` on a channel."""

    def __init__(self, channel: grpc.aio.Channel):
        self.Carry = carry(channel, "SessionsInternalService")

    def start(self) -> tuple[StreamCall, Callable[[], Awaitable[object]]]:
        """A call of it."""
        call = self.Carry()

        async def close() -> None:
            call.cancel()

        return call, close


def _has_room(lane: Multiplexer) -> bool:
    return not lane.retired and lane.load < CALLS_PER_LANE
