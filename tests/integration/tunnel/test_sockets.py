"""Data sent by a target before it closes is read to the end; one that vanishes is noticed."""

import asyncio
import os
import shutil
import socket
import ssl
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import uvloop
from tests.support.environments.required import lacking

from windlass.sessions.listener.certificates import own_certificate, server_context
from windlass.tunnel.tls import TlsTransport
from windlass_agent.tunnel.sockets import connect

BYTES = bytes(range(256)) * 2000


class Hasty(asyncio.Protocol):
    """Says everything and leaves, as an API server does behind a command's last output."""

    def connection_made(self, transport: Any) -> None:
        transport.write(BYTES)
        transport.close()


@pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_what_is_taken_at_once_and_what_is_read_keep_their_order(
    loop: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    async def main() -> None:
        running, said = asyncio.get_running_loop(), bytearray()
        server = await running.create_server(Hasty, "127.0.0.1", 0)
        made = await connect("127.0.0.1", server.sockets[0].getsockname()[1])
        turns = 0

        def take(data: bytes) -> bool:
            nonlocal turns
            turns += 1
            if turns % 2:
                said.extend(data)
            return bool(turns % 2)

        made.pass_on(take)
        while data := await made.read():
            # What comes meanwhile is not before its turn.
            await asyncio.sleep(0.01)
            said.extend(data)
        assert said == BYTES
        made.abort()
        server.close()

    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(main())


@pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop])
@pytest.mark.parametrize("secure", [False, True])
def test_the_last_words_of_a_target_are_heard(
    tmp_path: Path, loop: Callable[[], asyncio.AbstractEventLoop], secure: bool
) -> None:
    certificate, key, ca = own_certificate(tmp_path, {"127.0.0.1"})
    context = server_context(certificate, key)

    async def main() -> None:
        running = asyncio.get_running_loop()
        server = await running.create_server(
            lambda: TlsTransport(Hasty(), context, server_side=True) if secure else Hasty(),
            "127.0.0.1",
            0,
        )
        tls = ssl.create_default_context(cafile=str(ca)) if secure else None
        for _ in range(5):
            made = await connect("127.0.0.1", server.sockets[0].getsockname()[1], tls=tls)
            said = b""
            while data := await made.read():
                said += data
                await asyncio.sleep(0.03)
            assert said == BYTES
            made.abort()
        server.close()

    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(main())


@pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop])
@pytest.mark.parametrize(("may_stall", "unacknowledged"), [(False, 30_000), (True, 0)])
@pytest.mark.parametrize("secure", [False, True])
def test_the_system_is_told_to_look_for_the_other_side(
    tmp_path: Path,
    loop: Callable[[], asyncio.AbstractEventLoop],
    may_stall: bool,
    unacknowledged: int,
    secure: bool,
) -> None:
    certificate, key, ca = own_certificate(tmp_path, {"127.0.0.1"})
    context = server_context(certificate, key)

    async def main() -> None:
        server = await asyncio.get_running_loop().create_server(
            lambda: TlsTransport(Hasty(), context, server_side=True) if secure else Hasty(),
            "127.0.0.1",
            0,
        )
        tls = ssl.create_default_context(cafile=str(ca)) if secure else None
        port = server.sockets[0].getsockname()[1]
        made = await connect("127.0.0.1", port, tls=tls, may_stall=may_stall)
        assert looks_for_loss(made._transport) == (1, 15, 5, 3, unacknowledged)
        made.abort()
        server.close()

    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(main())


def looks_for_loss(transport: Any) -> tuple[int, ...]:
    """Whether the system probes a connection, and when: idle, between, how often; and for data."""
    with socket.socket(fileno=os.dup(transport.get_extra_info("socket").fileno())) as same:
        probes = ("TCP_KEEPIDLE", "TCP_KEEPINTVL", "TCP_KEEPCNT", "TCP_USER_TIMEOUT")
        return (
            same.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE),
            *(same.getsockopt(socket.IPPROTO_TCP, getattr(socket, one)) for one in probes),
        )


def test_a_machine_that_vanishes_is_noticed_by_who_waits_for_it() -> None:
    apart = ["unshare", "--user", "--map-root-user", "--net"]
    if shutil.which("ip") is None or subprocess.run([*apart, "true"], check=False).returncode:
        lacking("a network of its own: apt-get install iproute2, and user namespaces")
    program = [sys.executable, "-m", "tests.integration.tunnel.lost_peer"]
    said = subprocess.run([*apart, *program], check=True, capture_output=True, text=True).stdout
    # The third connection has no such options.
    assert said == "rests asks"
