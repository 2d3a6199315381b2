"""The door of a trainer's pod: it passes bytes of the agent's connections, and of no other's."""

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from tests.support.processes.windlass import free_port

from windlass.tunnel.authority import Authority, ClientIdentity
from windlass_agent.keeper.engine_keeper import EngineKeeper
from windlass_agent.keeper.identity import DoorIdentity
from windlass_agent.keeper.trainer_door import TrainerDoor

NAME = "engine-trainer-1"


class Stage:
    """A door before an echo; `keeper.serves` says whether there is a trainer."""

    def __init__(self, folder: Path, inner: int):
        self.authority = Authority.make()
        (folder / "ca.crt").write_bytes(self.authority.certificate)
        self.identity = DoorIdentity(folder / "keeper", folder / "ca.crt")
        self.identity.take(self.authority.certify(self.identity.request(), NAME))
        self.silenced: Callable[[], None] = lambda: None
        self.keeper = SimpleNamespace(serves=True, when_silent=self._note)
        self.door = TrainerDoor(cast(EngineKeeper, self.keeper), f"http://127.0.0.1:{inner}")
        self.port = free_port()

    def _note(self, called: Callable[[], None]) -> None:
        self.silenced = called

    def agents(self) -> ssl.SSLContext:
        tls = ssl.create_default_context(cadata=self.authority.certificate.decode())
        return ClientIdentity(self.authority, tls).tls

    async def connect(self, tls: ssl.SSLContext) -> tuple[Any, Any]:
        return await asyncio.open_connection("127.0.0.1", self.port, ssl=tls, server_hostname=NAME)


@pytest.fixture
async def stage(tmp_path: Path) -> AsyncIterator[Stage]:
    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(1000):
                writer.write(data)
        writer.transport.abort()

    server = await asyncio.start_server(echo, "127.0.0.1", 0)
    made = Stage(tmp_path, server.sockets[0].getsockname()[1])
    await made.door.open(made.port, made.identity.tls)
    yield made
    await made.door.close()
    server.close()


async def test_the_agents_bytes_go_both_ways(stage: Stage) -> None:
    reader, writer = await stage.connect(stage.agents())
    writer.write(b"PRI * HTTP/2.0\r\n")
    assert await reader.readexactly(16) == b"PRI * HTTP/2.0\r\n"
    # Nothing holds the end of a pod up.
    await stage.door.drained()
    # One that hangs is cut.
    stage.silenced()
    with contextlib.suppress(OSError):
        assert await reader.read() == b""
    writer.transport.abort()


async def test_strangers_and_those_who_come_early_hear_nothing(stage: Stage) -> None:
    stranger = ssl.create_default_context(cadata=stage.authority.certificate.decode())
    with contextlib.suppress(OSError):
        reader, writer = await stage.connect(stranger)
        writer.write(b"x")
        assert await reader.read(1) == b""
    stage.keeper.serves = False
    reader, writer = await stage.connect(stage.agents())
    writer.write(b"x")
    with contextlib.suppress(OSError):
        assert await reader.read(1) == b""
    writer.transport.abort()
