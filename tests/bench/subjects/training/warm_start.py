"""A runner's start to its trainer's first step, beside the start of the trainer alone.

Warm: what both read, programs and model, lies in the machine's memory, since a job ran before.
The runner's time begins when its agent makes the attempt's folder, just before the process.
"""

import statistics

from tests.bench import tuning
from tests.bench.bare import capture
from tests.bench.figures import Figure, Options
from tests.bench.heard import heard, listen_until
from tests.bench.plant import Plant, single

MAX_RATIO = 1.3
EXAMPLES = 300


async def measure(options: Options) -> list[Figure]:
    """The median of interleaved pairs, of which every other one begins with bare."""
    pairs = 1 if options.quick else 5
    ours, alone = [], []
    # With a spare there would be nothing to compare: that is `warm_job`.
    with single({"log_level": "WARNING", "agent": {"spare_trainers": 0}}) as plant:
        tuning.import_model(plant)
        file = tuning.training_file(plant, EXAMPLES)
        bare = capture(plant, file, backend="trl")
        for pair in range(pairs):
            if pair % 2:
                alone.append(bare.first_step())
            ours.append(_through(plant, file))
            if not pair % 2:
                alone.append(bare.first_step())
    ratio = statistics.median(o / a for o, a in zip(ours, alone, strict=True))
    return [
        Figure(
            name="warm_start",
            value=statistics.median(ours),
            unit="s",
            goal=f"≤ {MAX_RATIO} x bare, median of {pairs}",
            met=ratio <= MAX_RATIO,
            peer="bare",
            peer_value=statistics.median(alone),
            ratio=ratio,
        )
    ]


def _through(plant: Plant, file: str) -> float:
    """Seconds from the start of a job's runner to the end of the first step."""
    with heard(tuning.attempts(plant)) as trainers:
        job_id = tuning.create(plant, file)
        listen_until(lambda: any(trainer.steps for trainer in trainers.values()))
        (trainer,) = (each for each in trainers.values() if each.steps)
    tuning.cancel(plant, job_id)
    return min(trainer.steps.values()) - trainer.seen
