"""The processes between which the tunnel is measured.

The replica and its client are this process, the agent's end, the API server and the engine others.
"""

import asyncio
import contextlib
import os
import ssl
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.bench import machine, plant
from tests.support.environments.postgres import reachable_folder
from tests.support.processes.windlass import free_port
from tests.support.services.tunnel_plane import Replica, kubernetes, running_replica
from tests.support.waiting import settled, until

from windlass.api.sessions.v1.sessions_pb2 import Target
from windlass.migrations import migrate
from windlass.tunnel.byte_stream import ByteStream
from windlass_agent.tunnel.sockets import Socket, connect


@dataclass(frozen=True)
class TunnelBench:
    """Subject of a measurement, and its two addresses: direct and tunnelled."""

    replica: Replica
    cluster_id: str
    port: int
    agent: int
    tls: ssl.SSLContext

    def spent(self) -> tuple[float, float]:
        """Seconds of processor time so far, of the agent and of this process."""
        return machine.cpu_seconds(self.agent), time.process_time()

    async def tunnelled(self) -> ByteStream:
        """A connection through the tunnel."""
        return await self.replica.connect(self.cluster_id, kubernetes())

    async def engine(self) -> ByteStream:
        """A connection through the tunnel to an engine that computes nothing."""
        return await self.replica.connect(self.cluster_id, Target(workload_id="engine"))

    async def direct(self) -> Socket:
        """A connection to the API server itself."""
        return await connect("127.0.0.1", self.port, tls=self.tls)


@asynccontextmanager
async def running() -> AsyncIterator[TunnelBench]:
    """Runs a replica in this process and, beside it, an agent, an API server and an engine."""
    with reachable_folder() as folder, contextlib.ExitStack() as processes:
        async with plant.postgres(folder) as url:
            await asyncio.to_thread(migrate, url)
            port, grpc_port, engine = free_port(), free_port(), free_port()
            tls = folder / "tls"
            tls.mkdir()
            processes.enter_context(
                _process("tls_api", str(port), str(tls), log=folder / "api.log")
            )
            processes.enter_context(_process("null_engine", str(engine), log=folder / "engine.log"))
            settings = {"grpc": {"listen": f"127.0.0.1:{grpc_port}"}}
            async with running_replica(url, folder / "data", settings=settings) as replica:
                enrolled = await replica.register("bench")
                ca = await _appears(tls / "ca.pem")
                agent = processes.enter_context(
                    _process(
                        "tunnel_agent", f"grpc://127.0.0.1:{grpc_port}", enrolled.credential,
                        f"https://127.0.0.1:{port}", str(ca), "",
                        f"http://127.0.0.1:{engine}", log=folder / "agent.log",
                    )
                )  # fmt: skip
                await until(lambda: replica.tunnels.holds(enrolled.cluster_id))
                trust = ssl.create_default_context(cafile=str(ca))
                yield TunnelBench(replica, enrolled.cluster_id, port, agent, trust)


async def _appears(path: Path) -> Path:
    # Whole once it no longer grows.
    await until(path.exists)
    await settled(lambda: path.stat().st_size)
    return path


@contextlib.contextmanager
def _process(module: str, *arguments: str, log: Path) -> Iterator[int]:
    with log.open("ab") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", f"tests.bench.programs.{module}", *arguments],
            stdout=output,
            stderr=output,
            cwd=machine.ROOT,
            env={**os.environ, "PYTHONPATH": "services:agent:."},
        )
    try:
        yield process.pid
    finally:
        process.kill()
        process.wait()
        if process.returncode not in (0, -9):
            print(log.read_text(), file=sys.stderr)
