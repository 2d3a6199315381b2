"""Steps that a job repeats after its runner is killed, and the time until it continues.

Each job is killed at another place in its training, after its first checkpoint; a checkpoint is
made at the end of each epoch.
"""

import math
import random
import signal
import statistics
import time

from tests.bench import tuning
from tests.bench.figures import Figure, Options, at_most, plain
from tests.bench.heard import heard, listen_until
from tests.bench.plant import Plant, single


async def measure(options: Options) -> list[Figure]:
    """The worst of some jobs, in checkpoint intervals; the median of their delays."""
    examples, jobs = (300, 1) if options.quick else (1500, 5)
    interval = math.ceil(examples / tuning.BATCH)
    source = random.Random(0)
    lost, delays = [], []
    with single({"log_level": "WARNING"}) as plant:
        tuning.import_model(plant)
        file = tuning.training_file(plant, examples)
        for _ in range(jobs):
            # Later than the first checkpoint, earlier than the last.
            at = source.randint(interval + 2, tuning.EPOCHS * interval - 2)
            steps, seconds = _killed(plant, file, at)
            lost.append(steps)
            delays.append(seconds)
    return [
        at_most("resume_loss", max(lost) / interval, f"x {interval} steps", 1),
        plain("resume_loss_median", statistics.median(lost) / interval, f"x {interval} steps"),
        plain("resume_delay", statistics.median(delays), "s to the next step"),
    ]


def _killed(plant: Plant, file: str, at: int) -> tuple[int, float]:
    """Steps made twice by a job whose runner is killed at a step; seconds to the step after."""
    with heard(tuning.attempts(plant)) as trainers:
        job_id = tuning.create(plant, file)
        listen_until(lambda: any(at in trainer.steps for trainer in trainers.values()))
        tuning.runner(plant, job_id).send_signal(signal.SIGKILL)
        killed = time.perf_counter()
        listen_until(lambda: sum(bool(trainer.steps) for trainer in trainers.values()) == 2)
        first, second = (trainer.steps for trainer in trainers.values() if trainer.steps)
    tuning.wait(plant, job_id, ["succeeded"])
    return max(first) - min(second) + 1, min(second.values()) - killed
