"""Starts with confinement beside the same starts without it, in turns.

Of an engine, until it is ready to serve a tiny model; of a runner, until it calls its agent; and,
behind the walls of either, of a Python that ends at once, which shows what the walls
alone add. Programs and model lie in the machine's memory.
"""

import asyncio
import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

from tests.bench.figures import Figure, Options, at_most, plain
from tests.support.environments.postgres import reachable_folder
from tests.support.factories.toy_model import make_model
from tests.support.waiting import until

from windlass.api.jobs.v1.jobs_pb2 import Resources
from windlass.confinement import Bare, Confinement, Walls, WorkloadLimits, confinement, python_paths
from windlass.confinement.environment import child_environment
from windlass_agent.control_plane.connection import ControlPlane
from windlass_agent.engines.port import EngineSpec
from windlass_agent.engines.registry import engines
from windlass_agent.executors.process import processes
from windlass_agent.executors.process.allotment import Allotment
from windlass_agent.executors.process.engines.engine_process import EngineFiles, EngineProcess
from windlass_agent.executors.process.jobs.runners import RUNNER_COMMAND, Runners
from windlass_agent.folders import private_folder
from windlass_agent.runner_service import Registered, RunnerServer, RunnerTokens

GOAL_MS = 100.0
LIMITS = WorkloadLimits(memory=2**30)
LOOK_SECONDS = 0.005
START_SECONDS = 120.0

# Milliseconds of a start within the confinement that it is given.
Start = Callable[[Confinement], Awaitable[float]]


async def measure(options: Options) -> list[Figure]:
    """The medians of an engine's and a runner's starts, and of what confinement adds to them."""
    rounds, starts = (5, 1) if options.quick else (20, 2 * options.pairs)
    with reachable_folder() as folder:
        model = make_model(folder / "model")
        async with door(folder / "agent") as (server, rung):
            return [
                *await _beside("confined_engine", partial(engine, folder, model), starts),
                *await _beside("confined_runner", partial(runner, folder, server, rung), starts),
                *await _beside("walls_engine", partial(python, "engine", folder), rounds),
                *await _beside("walls_runner", partial(python, "runner", folder), rounds),
            ]


async def _beside(name: str, start: Start, rounds: int) -> list[Figure]:
    """Pairs of which every other one begins with bare, after one of each that is not counted."""
    confined, bare = confinement("required"), Bare()
    pairs: list[tuple[float, float]] = []
    for number in range(rounds + 1):
        if number % 2:
            without = await start(bare)
            pairs.append((await start(confined), without))
        else:
            pairs.append((await start(confined), await start(bare)))
    within, alone = (statistics.median(side) for side in zip(*pairs[1:], strict=True))
    added = statistics.median(walled - plainly for walled, plainly in pairs[1:])
    return [
        at_most(f"{name}_added", added, "ms", GOAL_MS),
        plain(name, within, "ms").beside("bare", alone),
    ]


async def engine(folder: Path, model: Path, how: Confinement) -> float:
    """Starts the built-in engine as its agent does, until it says that it is ready."""
    kind = engines()["builtin"]
    files = EngineFiles(
        record=folder / "engine.json",
        log=folder / "engine.log",
        socket=folder / "e" / "s",
        adapters=folder / "adapters",
        weights=folder / "weights",
    )
    spec = EngineSpec(
        model_dir=model, served_name="tiny", endpoint=f"unix://{files.socket}", max_adapters=1
    )
    began = time.perf_counter()
    process = EngineProcess.start(
        kind, spec, files=files, workload=b"", allotment=Allotment(), confinement=how
    )
    control = kind.control(spec.endpoint)

    async def ready() -> bool:
        if process.ended():
            raise RuntimeError(f"{process.last_words()}\n{process.output()}")
        return files.socket.exists() and await control.ready()

    try:
        await until(ready, START_SECONDS, every=LOOK_SECONDS)
        return (time.perf_counter() - began) * 1000
    finally:
        await control.close()
        await process.end()
        how.forget(files.name)
        files.remove()


class Doorbell(RunnerTokens):
    """Says that somebody has called, and knows nobody."""

    def __init__(self) -> None:
        super().__init__()
        self.rung = asyncio.Event()

    async def find(self, token: str) -> Registered | None:
        """Finds nothing."""
        self.rung.set()
        return None


@asynccontextmanager
async def door(folder: Path) -> AsyncIterator[tuple[RunnerServer, asyncio.Event]]:
    """Serves runners in a new folder, as an agent does; the event is set when one calls."""
    nobody = "unix:" + str(folder / "nobody")
    control, bell = ControlPlane(clusters=nobody, jobs=nobody, credential=""), Doorbell()
    server = RunnerServer(private_folder(folder) / "s", bell, control)
    # Before there is a socket, whose own mode lets runners call.
    confinement("required").show(folder)
    await server.start()
    try:
        yield server, bell.rung
    finally:
        await server.stop()
        await control.close()


async def runner(
    folder: Path, server: RunnerServer, rung: asyncio.Event, how: Confinement
) -> float:
    """Starts a runner as its agent does, until it calls."""
    agent, workdir, name = folder / "agent", folder / "attempt", "attempt"
    runners = Runners(
        command=(*RUNNER_COMMAND, *(["--confined"] if how.confines else [])),
        agent_address=server.address,
        confinement=how,
        readable=(agent, *python_paths()),
    )
    token, told = os.pipe()
    os.write(told, b"token")
    os.close(told)
    rung.clear()
    began = time.perf_counter()
    child = runners.start(name, workdir, resources=Resources(), allotment=Allotment(), token=token)
    try:
        await until(lambda: rung.is_set() or child.ended(), START_SECONDS, every=LOOK_SECONDS)
        took = (time.perf_counter() - began) * 1000
        if not rung.is_set():
            raise RuntimeError((workdir / "log").read_text())
        return took
    finally:
        os.close(token)
        processes.kill_session(child.pid, processes.start_time(child.pid))
        child.reap()
        how.forget(name)
        shutil.rmtree(workdir)


async def python(kind: str, folder: Path, how: Confinement) -> float:
    """Starts a Python that ends at once behind an engine's walls or a runner's, until it has."""
    place = folder / "place"
    place.mkdir(exist_ok=True)
    walls = Walls(readable=python_paths(), writable=(place,))
    if kind == "runner":
        walls = replace(walls, folder=place, network=True, nests=True)
    how.give(kind, place)
    began = time.perf_counter()
    with how.launch([sys.executable, "-P", "-c", ""], walls, name=kind, limits=LIMITS) as launch:
        subprocess.run(
            launch.command,
            check=True,
            pass_fds=launch.descriptors,
            env=child_environment(confined=how.confines),
            cwd="/",
        )
    took = (time.perf_counter() - began) * 1000
    how.forget(kind)
    return took
