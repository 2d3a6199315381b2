"""The gRPC calls that carry connections, on channels apart from the control stream."""

import asyncio
from collections.abc import Callable
from typing import Any

import grpc

from windlass.api.sessions.v1.sessions_pb2 import Chunk, Frames
from windlass.core import telemetry
from windlass.core.errors import AppError
from windlass.tunnel.byte_stream import broken
from windlass.tunnel.frames import encoded
from windlass.tunnel.multiplexed_call import MultiplexedCall
from windlass.tunnel.multiplexer import Multiplexer

# Of one call of `Carry`. It has a window, and what is lost with it is lost for all of them.
CONNECTIONS_PER_LANE = 100
# The server waits as long for the agent to dial back.
DIAL_SECONDS = 10.0
_CARRY = "/windlass.api.sessions.v1.SessionsAgentService/Carry"

log = telemetry.logger("tunnel")

Metadata = Callable[[], tuple[tuple[str, str], ...]]
OpenChannel = Callable[[], grpc.aio.Channel]


class Lanes:
    """Opens a lane whenever those that are open are full or retired."""

    def __init__(self, open_channel: OpenChannel, metadata: Metadata):
        self._open_channel = open_channel
        self._metadata = metadata
        self._lanes: dict[Multiplexer, asyncio.Task[None]] = {}

    async def open(self, first: Chunk) -> MultiplexedCall:
        """A call that begins with a chunk, on a lane that the server has answered.

        Raises AppError.
        """
        while True:
            lane = self._lane()
            try:
                async with asyncio.timeout(DIAL_SECONDS):
                    await lane.opened()
            except TimeoutError:
                # A channel that does not come up holds nobody else.
                lane.abort(broken("The server does not answer."))
                raise broken("The server does not answer.") from None
            if has_room(lane):
                return lane.open(first)

    def renew(self) -> None:
        """Leaves every lane to the connections that it has: new ones go another way."""
        for lane in tuple(self._lanes):
            lane.retire()

    async def close(self) -> None:
        """Closes every lane, and so ends every connection."""
        carrying = list(self._lanes.values())
        for task in carrying:
            task.cancel()
        await asyncio.gather(*carrying, return_exceptions=True)

    def _lane(self) -> Multiplexer:
        for lane in self._lanes:
            if has_room(lane):
                return lane
        channel = self._open_channel()
        carry: Any = channel.stream_stream(
            _CARRY, request_serializer=encoded, response_deserializer=Frames.FromString
        )
        lane = Multiplexer(carry(metadata=self._metadata(), wait_for_ready=True))
        self._lanes[lane] = asyncio.create_task(self._carry(lane, channel))
        return lane

    async def _carry(self, lane: Multiplexer, channel: grpc.aio.Channel) -> None:
        try:
            await lane.run()
        except (AppError, grpc.aio.AioRpcError) as error:
            log.info("lane_lost", error=str(error))
        except Exception as error:
            log.error("lane_failed", exc_info=error)
        finally:
            del self._lanes[lane]
            await channel.close()


def has_room(lane: Multiplexer) -> bool:
    """Returns True if another connection may be opened on a lane."""
    return not lane.retired and lane.load < CONNECTIONS_PER_LANE
