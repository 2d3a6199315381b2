"""Connections to engines through a cluster's tunnel, as asyncio transports."""

import asyncio
from typing import Any
from urllib.parse import SplitResult

import grpc

from windlass.api.sessions.v1.sessions_pb2 import Chunk, Target
from windlass.core.errors import AppError, from_rpc
from windlass.gateway.inference.engines.connection import EngineConnection
from windlass.tunnel.byte_stream import ByteStream, ConnectStub, over_call

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


async def connect(stub: ConnectStub, address: SplitResult) -> tuple[EngineConnection, bool]:
    """A connection to `tunnel://CLUSTER_ID/WORKLOAD_ID`, and whether another replica relays it.

    Raises OSError (TimeoutError is one).
    """
    call: Any = stub.Connect()
    target = Target(workload_id=address.path.lstrip("/"))
    try:
        async with asyncio.timeout(CONNECT_SECONDS):
            await call.write(Chunk(cluster_id=address.netloc, target=target))
            answer = await call.read()
    except grpc.aio.AioRpcError as error:
        raise ConnectionError(from_rpc(error).message) from error
    except BaseException:
        call.cancel()
        raise
    if not isinstance(answer, Chunk) or answer.error:
        call.cancel()
        raise ConnectionError("The tunnel did not open.")
    connection = EngineConnection(asyncio.get_running_loop())
    TunnelTransport(over_call(call), connection)
    return connection, answer.relayed
