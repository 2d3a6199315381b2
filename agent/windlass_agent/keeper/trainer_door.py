"""The only way to a trainer in a pod: connections of the agent, byte by byte.

Who calls is proved twice, by the certificate of the agent and by the token that the trainer knows.
"""

import asyncio
import contextlib
import ssl

from windlass_agent.engines.endpoint import parse_endpoint
from windlass_agent.keeper.engine_keeper import EngineKeeper

_READ_BYTES = 256 * 1024


class TrainerDoor:
    """Passes connections on to the trainer for as long as it serves."""

    def __init__(self, keeper: EngineKeeper, endpoint: str):
        self._keeper = keeper
        self._address = parse_endpoint(endpoint)
        self._server: asyncio.Server | None = None
        self._open: set[asyncio.StreamWriter] = set()
        keeper.when_silent(self._cut)

    async def open(self, port: int, tls: ssl.SSLContext) -> None:
        """Listens."""
        self._server = await asyncio.start_server(self._pass_on, port=port, ssl=tls)

    async def close(self) -> None:
        """Stops listening, and ends what is open."""
        if self._server is not None:
            self._server.close()
        self._cut()

    async def drained(self) -> None:
        """Returns at once: what a trainer had not saved is done again from its run's log."""

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open.add(writer)
        try:
            if not self._keeper.serves:
                return
            with contextlib.suppress(OSError):
                inner = await asyncio.open_connection(self._address.host, self._address.port)
                self._open.add(inner[1])
                try:
                    await _join((reader, writer), inner)
                finally:
                    self._open.discard(inner[1])
                    inner[1].transport.abort()
        finally:
            self._open.discard(writer)
            writer.transport.abort()

    def _cut(self) -> None:
        for writer in tuple(self._open):
            writer.transport.abort()


Side = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def _join(one: Side, other: Side) -> None:
    """Carries bytes both ways until either side has ended: HTTP/2 has no half-closed connection."""
    pumps = [
        asyncio.create_task(_pump(one[0], other[1])),
        asyncio.create_task(_pump(other[0], one[1])),
    ]
    try:
        await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for pump in pumps:
            pump.cancel()
        await asyncio.gather(*pumps, return_exceptions=True)


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(_READ_BYTES):
        writer.write(data)
        await writer.drain()
