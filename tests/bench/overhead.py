"""A fine-tuning job through the platform, beside the same training without it.

The platform's time runs from the request that creates the job to `succeeded`: validation,
placement, inputs, training, checkpoints, upload and registration.
"""

import statistics
import time
from collections.abc import Mapping, Sequence
from typing import Any

from tests.bench import tuning
from tests.bench.bare import capture
from tests.bench.figures import Figure, Options, plain
from tests.bench.plant import Plant, single

LEAST_SECONDS = 60.0
SLACK_SECONDS = 2.0
MAX_RATIO = 1.05


def measure(
    name: str, options: Options, *, backend: str, examples: int, agent: Mapping[str, Any]
) -> list[Figure]:
    """The median over interleaved pairs, of which every other one begins with bare.

    The training alone of `examples` has to take longer than a minute.
    """
    pairs = 1 if options.quick else options.pairs
    with single({"log_level": "WARNING", "agent": agent}) as plant:
        tuning.import_model(plant)
        file = tuning.training_file(plant, 300 if options.quick else examples)
        bare = capture(plant, file, backend=backend)
        ours, alone, training = [], [], []

        def run_bare() -> None:
            seconds, trainer = bare.run()
            alone.append(seconds)
            training.append(trainer.training_seconds)

        for pair in range(pairs):
            if pair % 2:
                run_bare()
            ours.append(_through(plant, file, backend))
            if not pair % 2:
                run_bare()
    return _figures(name, ours, alone, min(training))


def _through(plant: Plant, file: str, backend: str) -> float:
    """Seconds from the creation of a job to its success."""
    began = time.perf_counter()
    tuning.wait(plant, tuning.create(plant, file, backend=backend), ["succeeded"])
    return time.perf_counter() - began


def _figures(
    name: str, ours: Sequence[float], alone: Sequence[float], training: float
) -> list[Figure]:
    excess = statistics.median(o - MAX_RATIO * a for o, a in zip(ours, alone, strict=True))
    ratio = statistics.median(o / a for o, a in zip(ours, alone, strict=True))
    return [
        Figure(
            name=name,
            value=statistics.median(ours),
            unit="s",
            goal=f"≤ {MAX_RATIO} x bare + {SLACK_SECONDS:g} s, median of {len(ours)}",
            met=excess <= SLACK_SECONDS and training >= LEAST_SECONDS,
            peer="bare",
            peer_value=statistics.median(alone),
            ratio=ratio,
        ),
        plain(f"{name}_excess", excess, "s beyond 1.05 x bare"),
        plain(f"{name.removesuffix('_overhead')}_training", training, "s of steps"),
    ]
