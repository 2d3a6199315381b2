"""kill -9 at each named point of a connection: its client hears of it, and the next one works.

The client is a replica of this process, which reaches the agent by way of the server. Either may
carry one connection at a time, so that one that leaked would refuse every later one.
"""

import asyncio
import base64
import contextlib
import os
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from tests.faults.kill_points.points import named_points
from tests.support.environments import postgres
from tests.support.processes import warm
from tests.support.processes.windlass import Windlass, make_single, running
from tests.support.services.tunnel_plane import Replica, running_replica
from tests.support.waiting import until

from windlass.api.sessions.v1.sessions_pb2 import Target
from windlass.core.app import runtime_dir
from windlass.core.errors import AppError
from windlass.core.ids import new_id
from windlass.core.killpoints import VARIABLE

pytestmark = pytest.mark.faults

# Where the exchange cannot have been whole, and where all of it may have arrived.
BROKEN = ("tunnel.dialled", "tunnel.attached", "tunnel.written")
EITHER = ("tunnel.side_ended", "tunnel.finished")
PROGRAM = Path(__file__).with_name("tunnel_agent.py")
SETTINGS = {
    "master_key": {"key": base64.b64encode(os.urandom(32)).decode()},
    "sessions": {"max_connections_per_cluster": 1},
}
WHOLE = b"one two bye"


def start_agent(command: list[str], points: Path) -> warm.Process:
    """Starts the agent's end, which is killed at the points that are armed."""
    environment = {**os.environ, VARIABLE: str(points / "agent")}
    with Path(os.devnull).open("ab") as log:
        return warm.start(*command, environment=environment, log=log)


@dataclass
class Workload:
    """A workload that echoes, says goodbye once its client has ended its side, and ends."""

    open: set[asyncio.StreamWriter] = field(default_factory=set)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.open.add(writer)
        try:
            with contextlib.suppress(ConnectionError):
                while data := await reader.read(65536):
                    writer.write(data)
                writer.write(b"bye")
        finally:
            self.open.discard(writer)
            writer.close()


@dataclass
class Site:
    """A server and an agent as processes, and a client whose connections run through both."""

    server: Windlass
    client: Replica
    workload: Workload
    points: Path
    cluster_id: str
    command: list[str]
    agent: warm.Process

    def start_agent(self) -> None:
        self.agent = start_agent(self.command, self.points)

    def arm(self, process: str, point: str) -> None:
        (self.points / process / point).touch()

    async def restart(self, process: str, point: str) -> None:
        """Starts again what a point has killed."""
        reached = self.points / process / f"{point}.reached"
        await until(reached.exists)
        reached.unlink()
        if process == "agent":
            await asyncio.to_thread(self.agent.wait)
            self.start_agent()
        else:
            await asyncio.to_thread(self.server.processes["all"].wait)
            await asyncio.to_thread(self.server.start)
            await asyncio.to_thread(self.server.wait_ready)

    async def exchange(self, process: str = "", point: str = "") -> bytes:
        """Returns all that the workload said; a point is armed once it has said something."""
        target = Target(workload_id="echo")
        stream = await self.client.connect(self.cluster_id, target)
        try:
            await stream.write(b"one ")
            answer = await stream.read()
            if point:
                self.arm(process, point)
            await stream.write(b"two ")
            answer += await stream.read()
            await stream.close_write()
            while data := await stream.read():
                answer += data
        finally:
            stream.abort()
        return answer

    async def works(self) -> bool:
        with contextlib.suppress(AppError):
            return await self.exchange() == WHOLE
        return False


@pytest.fixture(scope="module")
def server(
    postgres_url: str, schema_template: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[str, Windlass, Path]]:
    points = tmp_path_factory.mktemp("points")
    for process in ("server", "agent"):
        (points / process).mkdir()
    with (
        postgres.reachable_folder() as folder,
        postgres.fresh_database(postgres_url, template=schema_template) as url,
    ):
        database = {"url": url.replace("+psycopg", ""), "migrate": False}
        settings = SETTINGS | {"agent": {"enabled": False}, "database": database}
        made = make_single(folder / "data", settings)
        made.environments["all"] = {VARIABLE: str(points / "server")}
        with running(made):
            yield url, made, points


@pytest.fixture
async def site(server: tuple[str, Windlass, Path], tmp_path: Path) -> AsyncIterator[Site]:
    url, made, points = server
    workload = Workload()
    listening = await asyncio.start_server(workload.serve, "127.0.0.1", 0)
    endpoint = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
    async with running_replica(url, tmp_path / "client", settings=SETTINGS) as client:
        enrolled = await client.register(new_id("").lower()[:20])
        address = f"unix://{runtime_dir(made.data) / 'windlass.sock'}"
        command = [str(PROGRAM), address, enrolled.credential, endpoint]
        agent = start_agent(command, points)
        site = Site(made, client, workload, points, enrolled.cluster_id, command, agent)
        try:
            await until(site.works)
            yield site
        finally:
            site.agent.kill()
            site.agent.wait()
    listening.close()


@pytest.mark.parametrize("process", ["server", "agent"])
@pytest.mark.parametrize("point", [*BROKEN, *EITHER])
async def test_no_connection_ends_quietly_or_leaks(site: Site, process: str, point: str) -> None:
    said: bytes | AppError
    try:
        async with asyncio.timeout(30):
            if point == "tunnel.written":
                said = await site.exchange(process, point)
            else:
                site.arm(process, point)
                said = await site.exchange()
    except AppError as error:
        said = error
    if isinstance(said, AppError):
        assert said.reason == "cluster_unreachable"
    else:
        assert (said, point in EITHER) == (WHOLE, True)
    await until(lambda: not site.workload.open)
    await site.restart(process, point)
    await until(site.works)
    await until(lambda: not site.workload.open)


def test_every_point_of_the_tunnel_has_a_case() -> None:
    named = {point for point in named_points() if point.startswith("tunnel.")}
    assert named == {*BROKEN, *EITHER}
