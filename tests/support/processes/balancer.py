"""A TCP load balancer that gives each new connection to the next server that accepts it."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path


class Balancer:
    """A balancer in this process. `servers` may change; open connections stay."""

    def __init__(self, servers: list[Path | int]):
        self.servers = servers
        self.port = 0
        # Which server took each connection, in their order.
        self.placed: list[Path | int] = []
        self._turn = 0
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def address(self) -> str:
        """Returns the address for an agent's `control_plane`."""
        return f"grpc://127.0.0.1:{self.port}"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            await self._join(reader, writer)
        except asyncio.CancelledError:
            # Only `cut` does so; a task of the listener must not end cancelled.
            pass
        finally:
            writer.transport.abort()
            self._tasks.discard(task)

    async def _join(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for _ in tuple(self.servers):
            self._turn += 1
            server = self.servers[self._turn % len(self.servers)]
            with contextlib.suppress(OSError):
                theirs, ours = await _connection(server)
                self.placed.append(server)
                break
        else:
            return
        try:
            await asyncio.wait(
                {
                    asyncio.create_task(_pump(reader, ours)),
                    asyncio.create_task(_pump(theirs, writer)),
                },
                return_when=asyncio.FIRST_COMPLETED,
            )
        finally:
            ours.transport.abort()

    async def cut(self) -> None:
        """Ends every connection that is open now, on both sides."""
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


async def _connection(server: Path | int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    if isinstance(server, int):
        return await asyncio.open_connection("127.0.0.1", server)
    return await asyncio.open_unix_connection(server)


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()


@asynccontextmanager
async def running_balancer(
    *servers: Path | int, host: str = "127.0.0.1"
) -> AsyncIterator[Balancer]:
    """Runs until the end of the block, over Unix sockets or ports of this machine."""
    balancer = Balancer(list(servers))
    listening = await asyncio.start_server(balancer.serve, host, 0)
    balancer.port = listening.sockets[0].getsockname()[1]
    try:
        yield balancer
    finally:
        listening.close()
        await balancer.cut()
