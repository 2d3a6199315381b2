"""Time until `windlass serve` is ready, and the import time of the command."""

import statistics
import subprocess
import sys
import time

from tests.bench.figures import Figure, Options, at_most, plain
from tests.support.environments.postgres import reachable_folder, remove_database
from tests.support.processes.windlass import Windlass, make_single

_IMPORT = (
    "import time; began = time.perf_counter(); import windlass.cli; "
    "print(time.perf_counter() - began)"
)


async def measure(options: Options) -> list[Figure]:
    """The first start makes the database; every later one finds it."""
    first, second = [], []
    for _ in range(1 if options.quick else 5):
        with reachable_folder() as folder:
            windlass = make_single(folder / "data", cold=True)
            try:
                first.append(_start(windlass))
                second.append(_start(windlass))
            finally:
                remove_database(windlass.data)
    cli = [_import() for _ in range(3 if options.quick else 11)]
    return [
        at_most("start_second", statistics.median(second), "s", 3),
        at_most("start_first", statistics.median(first), "s", 3),
        at_most("cli_import", statistics.median(cli), "s", 0.25),
        plain("cli_help", _help(3 if options.quick else 7), "s"),
    ]


def _start(windlass: Windlass) -> float:
    """Seconds from the start of the process to its first `ready`."""
    began = time.perf_counter()
    windlass.start()
    try:
        windlass.wait_ready(60, every=0.01)
        return time.perf_counter() - began
    finally:
        windlass.stop()


def _import() -> float:
    done = subprocess.run(
        [sys.executable, "-c", _IMPORT], capture_output=True, text=True, check=True
    )
    return float(done.stdout)


def _help(times: int) -> float:
    """Seconds of the whole command `windlass --help`, the interpreter's start included."""
    took = []
    for _ in range(times):
        began = time.perf_counter()
        subprocess.run(
            [sys.executable, "-m", "windlass", "--help"], capture_output=True, check=True
        )
        took.append(time.perf_counter() - began)
    return statistics.median(took)
