"""TLS that loses nothing, on asyncio's loop and on uvloop."""

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import uvloop
from tests.support.waiting import PATIENCE, until

from windlass.sessions.listener.certificates import own_certificate, server_context
from windlass.tunnel.tls import TlsTransport

BYTES = bytes(range(256)) * 4096


class Peer(asyncio.Protocol):
    """One end, as a test wants it."""

    def __init__(self) -> None:
        self.got = bytearray()
        self.transport: Any = None
        self.ended = asyncio.Event()
        self.lost = asyncio.Event()
        self.room = asyncio.Event()
        self.room.set()
        # After so many bytes it stops reading, until told.
        self.most = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        assert not self.ended.is_set()
        self.got += data
        if self.most and len(self.got) >= self.most:
            self.transport.pause_reading()

    def eof_received(self) -> bool:
        self.ended.set()
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        assert not self.lost.is_set()
        self.lost.set()

    def pause_writing(self) -> None:
        self.room.clear()

    def resume_writing(self) -> None:
        self.room.set()


@pytest.fixture(params=[asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Callable[[Any], Any]:
    """Runs a coroutine on a loop of a kind."""
    return lambda coroutine: asyncio.Runner(loop_factory=request.param).run(coroutine)


@asynccontextmanager
async def pair(
    folder: Path, *, theirs: str = "plain", trust: bool = True
) -> AsyncIterator[tuple[Peer, Peer]]:
    """A client with our TLS and a server with ours or with the loop's own."""
    certificate, key, ca = own_certificate(folder, {"127.0.0.1"})
    loop = asyncio.get_running_loop()
    context, peers = server_context(certificate, key), list[Peer]()

    def serve() -> asyncio.Protocol:
        peers.append(Peer())
        return TlsTransport(peers[0], context, server_side=True) if theirs == "ours" else peers[0]

    tls = None if theirs == "ours" else context
    server = await loop.create_server(serve, "127.0.0.1", 0, ssl=tls)
    port = server.sockets[0].getsockname()[1]
    client = Peer()
    believed = ssl.create_default_context(cafile=str(ca) if trust else None)
    transport = TlsTransport(client, believed, server_name="127.0.0.1")
    await loop.create_connection(lambda: transport, "127.0.0.1", port)
    try:
        await transport.ready()
        await until(lambda: peers and peers[0].transport is not None)
        yield client, peers[0]
    finally:
        transport.abort()
        server.close()


BOTH = pytest.mark.parametrize("theirs", ["ours", "the loop's"])


@BOTH
def test_bytes_both_ways(run: Any, tmp_path: Path, theirs: str) -> None:
    async def main() -> None:
        async with pair(tmp_path, theirs=theirs) as (client, server):
            assert client.transport.get_extra_info("ssl_object").version() == "TLSv1.3"
            assert not client.transport.can_write_eof()
            client.transport.write(BYTES)
            server.transport.write(BYTES)
            await until(lambda: len(server.got) >= len(BYTES) <= len(client.got))
            assert bytes(client.got) == bytes(server.got) == BYTES
            client.transport.close()
            await asyncio.wait_for(
                asyncio.gather(server.ended.wait(), client.lost.wait()), PATIENCE
            )
            assert client.transport.is_closing()

    run(main())


@BOTH
@pytest.mark.parametrize("how", ["close", "abort"])
def test_what_was_said_before_the_end_is_heard_by_a_slow_reader(
    run: Any, tmp_path: Path, theirs: str, how: str
) -> None:
    """The connection ends while reading is paused; the loop's own TLS may lose the rest."""

    async def main() -> None:
        async with pair(tmp_path, theirs=theirs) as (client, server):
            client.most = 1
            server.transport.write(BYTES[:300_000])
            await server.room.wait()
            # An abort drops what the system's own buffers do not hold already.
            await asyncio.sleep(0.1)
            getattr(server.transport, how)()
            await asyncio.sleep(0.1)
            while not client.ended.is_set() and not client.lost.is_set():
                # Piece by piece, so that it is paused again and again.
                client.most = len(client.got) + 1
                client.transport.resume_reading()
                await asyncio.sleep(0.001)
            if how == "close":
                assert bytes(client.got) == BYTES[:300_000]
            assert BYTES.startswith(client.got)
            await asyncio.wait_for(client.lost.wait(), PATIENCE)

    run(main())


def test_a_slow_reader_slows_the_writer(run: Any, tmp_path: Path) -> None:
    async def main() -> None:
        async with pair(tmp_path, theirs="ours") as (client, server):
            client.most = 1
            written = 0
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(1):
                    while True:
                        server.transport.write(BYTES)
                        written += len(BYTES)
                        await server.room.wait()
            assert written < 40 * len(BYTES)
            assert len(client.got) < len(BYTES)
            client.most = 0
            client.transport.resume_reading()
            await until(lambda: len(client.got) >= written)

    run(main())


def test_a_handshake_that_fails_says_why(run: Any, tmp_path: Path) -> None:
    async def main() -> None:
        with pytest.raises(ssl.SSLCertVerificationError):
            async with pair(tmp_path, theirs="the loop's", trust=False):
                pass

    run(main())


def test_a_server_that_leaves_during_the_handshake(run: Any, tmp_path: Path) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()

        class Rude(asyncio.Protocol):
            def connection_made(self, transport: Any) -> None:
                transport.close()

        server = await loop.create_server(Rude, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        transport = TlsTransport(Peer(), ssl.create_default_context(), server_name="x")
        await loop.create_connection(lambda: transport, "127.0.0.1", port)
        with pytest.raises((ConnectionError, ssl.SSLError)):
            await asyncio.wait_for(transport.ready(), PATIENCE)
        server.close()

    run(main())


def test_who_says_nothing_is_let_go(
    run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("windlass.tunnel.tls.PATIENCE_SECONDS", 0.2)

    async def main() -> None:
        certificate, key, _ = own_certificate(tmp_path, {"127.0.0.1"})
        loop = asyncio.get_running_loop()
        context, inner = server_context(certificate, key), Peer()
        server = await loop.create_server(
            lambda: TlsTransport(inner, context, server_side=True), "127.0.0.1", 0
        )
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        with contextlib.suppress(ConnectionError):
            assert await asyncio.wait_for(reader.read(), PATIENCE) == b""
        assert inner.transport is None
        writer.close()
        server.close()

    run(main())
