"""A connection between a client and a server that a test can cut and mend."""

import asyncio
import contextlib
import threading
from collections.abc import Iterator
from pathlib import Path

from tests.support.waiting import PATIENCE

CHUNK = 65536


class CutLine:
    """Passes bytes on to `target`, a Unix socket or `host:port`, in its own thread.

    While it is cut nothing gets through in either direction and nobody is told: connections
    stay open, new ones are taken and not answered, as where packets are dropped. What was
    sent meanwhile arrives once it is mended, if its connection still lives.
    """

    def __init__(self, target: Path | str):
        self._target = target
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._whole = asyncio.Event()
        self._whole.set()
        self._tasks: set[asyncio.Task[None]] = set()
        self.port = 0

    @property
    def address(self) -> str:
        """Returns the address for an agent's `control_plane`."""
        return f"grpc://127.0.0.1:{self.port}"

    def cut(self) -> None:
        self._loop.call_soon_threadsafe(self._whole.clear)

    def mend(self) -> None:
        self._loop.call_soon_threadsafe(self._whole.set)

    def start(self) -> None:
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._listen(), self._loop).result(PATIENCE)

    def stop(self) -> None:
        asyncio.run_coroutine_threadsafe(self._end(), self._loop).result(PATIENCE)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(PATIENCE)
        self._loop.close()

    async def _listen(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    async def _end(self) -> None:
        self._server.close()
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            await self._whole.wait()
            far_reader, far_writer = await self._connect()
            await asyncio.gather(self._pump(reader, far_writer), self._pump(far_reader, writer))
        except (OSError, asyncio.CancelledError):
            pass
        finally:
            self._tasks.discard(task)
            writer.close()

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if isinstance(self._target, Path):
            return await asyncio.open_unix_connection(self._target)
        host, _, port = self._target.rpartition(":")
        return await asyncio.open_connection(host, int(port))

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(CHUNK):
                await self._whole.wait()
                writer.write(data)
                await writer.drain()
        finally:
            await self._whole.wait()
            writer.close()


@contextlib.contextmanager
def cut_line(target: Path | str) -> Iterator[CutLine]:
    """Runs an uncut line until the end of the block."""
    line = CutLine(target)
    line.start()
    try:
        yield line
    finally:
        line.stop()
