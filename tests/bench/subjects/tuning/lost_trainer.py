"""A trainer of all parameters is killed: how long its run's next result then takes.

The floor is the start of a trainer, with its model, and one snapshot interval of work computed
again. Both are measured on the same server: a run that is made, and as many steps.
"""

import os
import signal
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from tests.bench.figures import Figure, Options, plain
from tests.bench.plant import NO_AGENT, single
from tests.bench.subjects.tuning.turns import TuningLoop
from tests.support.factories import tuning_engines as make
from tests.support.trainers import trainers

FULL = {"windlass.full_parameters": "true"}
# Of a loss and a step each.
SNAPSHOT_OPERATIONS = 40


async def measure(options: Options) -> list[Figure]:
    """Medians of rounds; each kills the trainer after as much as can be lost."""
    rounds = 1 if options.quick else 5
    lost, starts, intervals = list[float](), list[float](), list[float]()
    with tempfile.TemporaryDirectory() as folder, single(_settings(Path(folder))) as plant:
        for _ in range(rounds):
            began = time.perf_counter()
            loop = TuningLoop(plant, "toy", FULL)
            starts.append(time.perf_counter() - began)
            began = time.perf_counter()
            loop.learn(SNAPSHOT_OPERATIONS // 2)
            intervals.append(time.perf_counter() - began)
            # One step short of the next snapshot.
            loop.learn(SNAPSHOT_OPERATIONS // 2 - 1)
            for one in trainers():
                os.kill(one.pid, signal.SIGKILL)
            began = time.perf_counter()
            loop.learn(1)
            lost.append(time.perf_counter() - began)
            loop.end()
    floor = statistics.median(starts) + statistics.median(intervals)
    figure = plain("lost_trainer", statistics.median(lost), "s to the next result")
    return [figure.beside("a start and a snapshot interval", floor).at_most_times(1)]


def _settings(folder: Path) -> dict[str, Any]:
    make.network().save_pretrained(folder / "toy")
    tuning = {
        "trainer": "lora",
        "model_folders": {"toy": str(folder / "toy")},
        "full_parameter_trainers": 1,
        "snapshot_operations": SNAPSHOT_OPERATIONS,
    }
    return {**NO_AGENT, "tuning": tuning}
