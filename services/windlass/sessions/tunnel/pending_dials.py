"""Control streams that end at this replica, and the connections that agents dial back for."""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from windlass.api.sessions.v1.sessions_pb2 import Dial
from windlass.core.errors import AppError
from windlass.metrics.tunnel import CONNECTIONS
from windlass.sessions.tunnel.domain import ConnectionLimits, too_many, unreachable
from windlass.tunnel.byte_stream import ByteStream

HEARTBEAT_SECONDS = 5.0
# Messages that an agent has not taken; there are at most some per connection.
MAX_WAITING = 10_000


class ControlStream:
    """An agent's control stream that ends at this replica."""

    def __init__(self, cluster_id: str, session_id: str, generation: int):
        self.cluster_id = cluster_id
        self.session_id = session_id
        self.generation = generation
        self.ended: asyncio.Future[AppError | None] = asyncio.get_running_loop().create_future()
        self._dials: asyncio.Queue[Dial | None] = asyncio.Queue()

    def send(self, dial: Dial) -> None:
        """Queues a message; ends the stream if the agent does not read them."""
        self._dials.put_nowait(dial)
        if self._dials.qsize() > MAX_WAITING:
            self.end(unreachable("The agent is not reading its control stream."))

    async def next(self) -> Dial | None:
        """The next message, or a heartbeat after a pause; None at the end.

        Raises the AppError that `end` was given.
        """
        try:
            async with asyncio.timeout(HEARTBEAT_SECONDS):
                dial = await self._dials.get()
        except TimeoutError:
            return Dial()
        if dial is None and (error := self.ended.result()) is not None:
            raise error
        return dial

    def end(self, error: AppError | None = None) -> None:
        """Ends the stream; without an error it was only replaced."""
        if not self.ended.done():
            self.ended.set_result(error)
            self._dials.put_nowait(None)


class PendingDials:
    """Connections awaited here until the agent dials back."""

    def __init__(self) -> None:
        self._expected: dict[str, tuple[str, asyncio.Future[ByteStream]]] = {}

    @contextmanager
    def expecting(
        self, connection_id: str, cluster_id: str
    ) -> Iterator[asyncio.Future[ByteStream]]:
        """Awaits a connection during the block; closes it if the block fails."""
        brought: asyncio.Future[ByteStream] = asyncio.get_running_loop().create_future()
        self._expected[connection_id] = (cluster_id, brought)
        try:
            yield brought
        except BaseException:
            if brought.done() and not brought.cancelled() and brought.exception() is None:
                brought.result().abort()
            raise
        finally:
            self._expected.pop(connection_id, None)
            brought.cancel()

    def claim(self, connection_id: str, cluster_id: str) -> asyncio.Future[ByteStream] | None:
        """The waiter for a connection of this cluster, once; None if nobody waits."""
        expected = self._expected.get(connection_id)
        if expected is None or expected[0] != cluster_id or expected[1].done():
            return None
        del self._expected[connection_id]
        return expected[1]


class Slots:
    """Counts open connections, and refuses those beyond the limits."""

    def __init__(self, limits: ConnectionLimits):
        self._limits = limits
        self._open: Counter[str] = Counter()

    def take(self, cluster_id: str) -> Callable[[], None]:
        """Counts one more connection, returning its release; raises ResourceExhausted."""
        limits, used = self._limits, self._open
        if used[cluster_id] >= limits.per_cluster or used.total() >= limits.in_all:
            raise too_many()
        used[cluster_id] += 1
        CONNECTIONS.inc()

        def release() -> None:
            used[cluster_id] -= 1
            CONNECTIONS.dec()
            if not used[cluster_id]:
                del used[cluster_id]

        return release
