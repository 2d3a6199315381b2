"""Connections to engines through a cluster's tunnel, as asyncio transports."""

import asyncio
from urllib.parse import SplitResult

from windlass.api.sessions.v1.sessions_pb2 import Chunk, Target
from windlass.core.errors import AppError
from windlass.gateway.inference.engines.connection import EngineConnection
from windlass.tunnel.byte_stream import ByteStream, over_call
from windlass.tunnel.lanes import Lanes

# The tunnel itself gives an agent a little less to dial back.
CONNECT_SECONDS = 12.0


class TunnelTransport:
    """Carries an EngineConnection's bytes over one stream; each side's window is the tunnel's."""

    def __init__(self, stream: ByteStream, connection: EngineConnection):
        self._stream = stream
        self._connection = connection
        self._resumed = asyncio.Event()
        self._resumed.set()
        self._tasks = [asyncio.create_task(self._read())]
        connection.connection_made(self)

    def write(self, data: bytes) -> None:
        """Sends a whole request; a failure closes the connection."""
        self._tasks = [task for task in self._tasks if not task.done()]
        self._tasks.append(asyncio.create_task(self._send(data)))

    def pause_reading(self) -> None:
        """Stops reading, so that the tunnel's flow control makes the engine wait."""
        self._resumed.clear()

    def resume_reading(self) -> None:
        """Resumes reading."""
        self._resumed.set()

    def abort(self) -> None:
        """Ends the connection at once, at the engine too."""
        self._stream.abort()
        self._resumed.set()

    async def _send(self, data: bytes) -> None:
        try:
            await self._stream.write(data)
        except AppError:
            self._stream.abort()

    async def _read(self) -> None:
        failure: Exception | None = None
        try:
            while data := await self._stream.read():
                self._connection.data_received(data)
                await self._resumed.wait()
        except AppError as error:
            failure = ConnectionError(error.message)
        finally:
            self._stream.abort()
            self._connection.connection_lost(failure)


async def connect(lanes: Lanes, address: SplitResult) -> tuple[EngineConnection, bool]:
    """A connection to `tunnel://CLUSTER_ID/WORKLOAD_ID`, and whether another replica relays it.

    Raises OSError (TimeoutError is one).
    """
    target = Target(workload_id=address.path.lstrip("/"))
    try:
        async with asyncio.timeout(CONNECT_SECONDS):
            call = await lanes.open(Chunk(cluster_id=address.netloc, target=target))
            stream = over_call(call)
            try:
                answer = await call.read()
            except BaseException:
                stream.abort()
                raise
    except AppError as error:
        raise ConnectionError(error.message) from error
    if not isinstance(answer, Chunk) or answer.error:
        stream.abort()
        raise ConnectionError("The tunnel did not open.")
    connection = EngineConnection(asyncio.get_running_loop())
    TunnelTransport(stream, connection)
    return connection, answer.relayed
