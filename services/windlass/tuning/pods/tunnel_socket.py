"""A socket of this machine that leads through a cluster's tunnel to a workload."""

import asyncio
import contextlib
import shutil
import tempfile
from pathlib import Path

from windlass.api.sessions.v1.sessions_pb2 import Chunk, Target
from windlass.core import telemetry
from windlass.core.errors import AppError
from windlass.tunnel.byte_stream import ByteStream, broken, over_call
from windlass.tunnel.lanes import Lanes

# The tunnel itself gives an agent a little less to dial back.
CONNECT_SECONDS = 12.0
_READ_BYTES = 256 * 1024

log = telemetry.logger("trainer")


class TunnelSocket:
    """Carries each connection to the socket over one stream of the tunnel."""

    def __init__(self, lanes: Lanes, folder: Path, target: Chunk):
        self._lanes = lanes
        self._folder = folder
        self._target = target
        self._server: asyncio.Server | None = None
        self._open: set[asyncio.Task[None]] = set()

    @classmethod
    async def open(
        cls, lanes: Lanes, sockets: Path, cluster_id: str, workload_id: str
    ) -> "TunnelSocket":
        """Listens in a private folder below `sockets`; raises OSError."""
        folder = Path(await asyncio.to_thread(tempfile.mkdtemp, prefix="t-", dir=sockets))
        target = Chunk(cluster_id=cluster_id, target=Target(workload_id=workload_id))
        made = cls(lanes, folder, target)
        made._server = await asyncio.start_unix_server(made._accept, made.path)
        return made

    @property
    def path(self) -> Path:
        """The path of the socket."""
        return self._folder / "s"

    async def close(self) -> None:
        """Stops listening, and ends what is open."""
        if self._server is not None:
            self._server.close()
        for task in tuple(self._open):
            task.cancel()
        await asyncio.gather(*self._open, return_exceptions=True)
        await asyncio.to_thread(shutil.rmtree, self._folder, ignore_errors=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(self._carry(reader, writer))
        self._open.add(task)
        task.add_done_callback(self._open.discard)

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            stream = await self._dialled()
            try:
                await _joined(stream, reader, writer)
            finally:
                stream.abort()
        except (AppError, OSError) as error:
            log.info("trainer_connection_ended", reason=str(error))
        finally:
            writer.transport.abort()

    async def _dialled(self) -> ByteStream:
        """A stream to the workload; raises AppError, TimeoutError."""
        async with asyncio.timeout(CONNECT_SECONDS):
            call = await self._lanes.open(self._target)
            stream = over_call(call)
            try:
                answer = await call.read()
            except BaseException:
                stream.abort()
                raise
        if not isinstance(answer, Chunk) or answer.error:
            stream.abort()
            raise broken("The tunnel did not open.")
        return stream


async def _joined(
    stream: ByteStream, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    """Carries bytes both ways until either side has ended; raises AppError, OSError."""

    async def inward() -> None:
        while data := await reader.read(_READ_BYTES):
            await stream.write(data)

    async def outward() -> None:
        while data := await stream.read():
            writer.write(data)
            await writer.drain()

    pumps = [asyncio.create_task(inward()), asyncio.create_task(outward())]
    try:
        done, _ = await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        for pump in done:
            pump.result()
    finally:
        for pump in pumps:
            pump.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.gather(*pumps, return_exceptions=True)
