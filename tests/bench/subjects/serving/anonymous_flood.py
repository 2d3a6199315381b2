"""A tenant's chat while others without a key hold 3,000 connections and send 80 bodies.

The gateway runs alone on one core, without a proxy in front; flood, load, services, Postgres and
engine share the others. Beside it nginx with its defaults, before the same engine, in the same
flood. Quiet and flooded rounds alternate; a percentile is of all rounds of a kind.
"""

import asyncio
import contextlib
import json
import os
import resource
import shutil
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tests.bench import machine
from tests.bench.figures import Figure, Options, at_most, plain
from tests.bench.load import percentile, steady
from tests.bench.plant import NO_AGENT, Plant, flood, script, split_gateway, started
from tests.bench.stub_agent import StubAgent, joined
from tests.bench.subjects.serving.chat import LIMITS, PATH
from tests.support.environments.postgres import reachable_folder
from tests.support.processes.windlass import free_port

from windlass.api.clusters.v1 import clusters_pb2

RATE = 50.0
# The half-open ones are as many as they will be, and time out, after this.
SETTLE_SECONDS = 12.0
_NGINX = """
error_log /dev/null;
pid {folder}/nginx.pid;
worker_rlimit_nofile 8192;
events {{ worker_connections 4096; }}
http {{
    access_log off;
    client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi; uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    server {{
        listen 127.0.0.1:{port};
        location / {{ proxy_pass {engine}; }}
    }}
}}
"""


@dataclass
class Rounds:
    """Seconds of answers, and the server's memory in bytes, without and with the flood."""

    quiet: list[float] = field(default_factory=list)
    flooded: list[float] = field(default_factory=list)
    before: int = 0
    most: int = 0

    @property
    def slower(self) -> float:
        """The 99th percentile as a multiple of a quiet round's."""
        return percentile(self.flooded, 0.99) / percentile(self.quiet, 0.99)

    @property
    def added_mib(self) -> float:
        """The memory that the flood added to the server, in MiB."""
        return (self.most - self.before) / 2**20


async def measure(options: Options) -> list[Figure]:
    """See the module."""
    _raise_files()
    core = {min(os.sched_getaffinity(0))}
    others = os.sched_getaffinity(0) - core or core
    os.sched_setaffinity(0, others)
    try:
        port = free_port()
        with script("null_engine", str(port)) as pid:
            machine.pin(pid, others)
            engine = f"http://127.0.0.1:{port}"
            async with pinned_gateway(engine, core, others) as (plant, body):
                key, gateway_pid = plant.windlass.owner_key, plant.pid("gateway")
                ours = await _rounds(plant.windlass.port, gateway_pid, body, key, options)
            theirs = None
            if shutil.which("nginx"):
                with _nginx(engine, core) as (served, nginx_pid):
                    theirs = await _rounds(served, nginx_pid, body, key, options)
    finally:
        os.sched_setaffinity(0, core | others)
    return _figures(ours, theirs)


def _raise_files() -> None:
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 2**16), hard))


@contextlib.asynccontextmanager
async def pinned_gateway(
    engine: str, core: set[int], others: set[int]
) -> AsyncIterator[tuple[Plant, bytes]]:
    """A gateway alone on its core before an engine at an address, and the body of a chat."""

    async def serve(agent: StubAgent, workload: clusters_pb2.Workload) -> None:
        if workload.desired == clusters_pb2.DESIRED_STATE_RUNNING:
            await agent.running(workload, engine)

    async with split_gateway({**NO_AGENT, "limits": LIMITS}) as plant:
        machine.pin(plant.pid("services"), others)
        machine.pin(plant.pid("gateway"), core)
        body = _body(plant)
        async with joined(plant, serve):
            yield plant, body


def _body(plant: Plant) -> bytes:
    messages = [{"role": "user", "content": "Hello, how are you today?"}]
    return json.dumps({"model": plant.import_model(), "messages": messages}).encode()


@contextlib.contextmanager
def _nginx(engine: str, core: set[int]) -> Iterator[tuple[int, int]]:
    port = free_port()
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(reachable_folder())
        config = folder / "nginx.conf"
        config.write_text(_NGINX.format(folder=folder, port=port, engine=engine))
        command = ["nginx", "-c", str(config), "-p", str(folder), "-g", "daemon off;"]
        pid = stack.enter_context(started(command, f"http://127.0.0.1:{port}/v1/models"))
        for one in (pid, *_children(pid)):
            machine.pin(one, core)
        yield port, _children(pid)[0]


def _children(pid: int) -> list[int]:
    text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    return [int(child) for child in text.split()]


async def _rounds(port: int, pid: int, body: bytes, key: str, options: Options) -> Rounds:
    rounds = Rounds()
    seconds = 4.0 if options.quick else 15.0
    await steady(port, PATH, body, key=key, rate=RATE, seconds=2)
    for _ in range(1 if options.quick else 3):
        rounds.quiet += await steady(port, PATH, body, key=key, rate=RATE, seconds=seconds)
        rounds.before = max(rounds.before, machine.memory_bytes(pid, "VmRSS"))
        with flood("flood", str(port)):
            await asyncio.sleep(SETTLE_SECONDS)
            rounds.flooded += await steady(port, PATH, body, key=key, rate=RATE, seconds=seconds)
            rounds.most = max(rounds.most, machine.memory_bytes(pid, "VmRSS"))
    return rounds


def _figures(ours: Rounds, theirs: Rounds | None) -> list[Figure]:
    slower = at_most("flood_p99", ours.slower, "x quiet", 2)
    memory = at_most("flood_memory", max(ours.added_mib, 0.0), "MiB", 64)
    if theirs is not None:
        slower = slower.beside("nginx", theirs.slower)
        memory = memory.beside("nginx", max(theirs.added_mib, 0.1))
    found = [slower, memory]
    for name, kind in (("quiet", ours.quiet), ("flooded", ours.flooded)):
        found.append(plain(f"flood_p99_{name}", percentile(kind, 0.99) * 1000, "ms"))
    if theirs is not None:
        found.append(plain("flood_p99_nginx", percentile(theirs.flooded, 0.99) * 1000, "ms"))
    return found
