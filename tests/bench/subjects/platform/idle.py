"""Idle cost of `windlass serve`: CPU time of all its processes without requests."""

import asyncio
from pathlib import Path

import psutil
from tests.bench.figures import Figure, Options, at_most, plain
from tests.support.environments.postgres import reachable_folder, remove_database
from tests.support.processes.windlass import make_single

from windlass.embedded_postgres import EmbeddedPostgres

_UNIT = "% of a core"
# For the first looks, and the agent's enrolment.
_SETTLE_SECONDS = 20


async def measure(options: Options) -> list[Figure]:
    """The server with its agent and database, beside a database that nobody speaks with."""
    seconds = 30 if options.quick else 60
    with reachable_folder() as folder:
        floor = await _floor(folder, seconds)
        windlass = make_single(folder / "data", cold=True)
        windlass.start()
        try:
            await asyncio.to_thread(windlass.wait_ready)
            await asyncio.sleep(_SETTLE_SECONDS)
            server = psutil.Process(windlass.processes["all"].pid)
            python, database = await _percents(server, seconds)
        finally:
            await asyncio.to_thread(windlass.stop)
            remove_database(windlass.data)
    return [
        at_most("idle_cpu", python + database, _UNIT, 1).beside("idle Postgres alone", floor),
        plain("idle_cpu_server", python, _UNIT),
        plain("idle_cpu_postgres", database, _UNIT),
    ]


async def _floor(folder: Path, seconds: float) -> float:
    postgres = EmbeddedPostgres(folder / "postgres")
    await postgres.start()
    try:
        await asyncio.sleep(_SETTLE_SECONDS)
        _, database = await _percents(psutil.Process(), seconds)
    finally:
        await postgres.stop()
        remove_database(folder)
    # The clock of a process counts hundredths of a second.
    return max(database, 0.01)


async def _percents(parent: psutil.Process, seconds: float) -> tuple[float, float]:
    """Of a process with its children: what is not Postgres, and what is."""
    before = _spent(parent)
    await asyncio.sleep(seconds)
    after = _spent(parent)
    python, database = (
        100 * sum(after[key] - before.get(key, 0.0) for key in after if key[1] is is_postgres)
        for is_postgres in (False, True)
    )
    return python / seconds, database / seconds


def _spent(parent: psutil.Process) -> dict[tuple[int, bool], float]:
    found = {}
    for process in [parent, *parent.children(recursive=True)]:
        times = process.cpu_times()
        found[process.pid, process.name().startswith("postgres")] = times.user + times.system
    return found
