"""From a step's end to its metrics in the stream of the job's events.

A step ends when the trainer's own line of it lies in the file that the runner reads; the stream
is followed over HTTP meanwhile.
"""

import json
import time

from tests.bench import tuning
from tests.bench.figures import Figure, Options, at_most, plain
from tests.bench.heard import heard
from tests.bench.load import percentile
from tests.bench.plant import Plant, single


async def measure(options: Options) -> list[Figure]:
    """Milliseconds of each step that the trainer told of."""
    with single({"log_level": "WARNING"}) as plant:
        tuning.import_model(plant)
        file = tuning.training_file(plant, 300 if options.quick else 3000)
        with heard(tuning.attempts(plant)) as trainers:
            seen = _followed(plant, tuning.create(plant, file))
        (trainer,) = trainers.values()
        told = trainer.steps
    delays = [1000 * (seen[step] - at) for step, at in told.items() if step in seen]
    if len(delays) < len(seen) / 2:
        raise RuntimeError(f"of {len(seen)} steps the file showed {len(told)} alone")
    return [
        at_most("metrics_delay_p99", percentile(delays, 0.99), "ms", 1000),
        plain("metrics_delay_p50", percentile(delays, 0.5), "ms"),
    ]


def _followed(plant: Plant, job_id: str) -> dict[int, float]:
    """Returns when each step's metrics came, until the job has ended."""
    seen: dict[int, float] = {}
    url = f"/v1/fine_tuning/jobs/{job_id}/events"
    with (
        plant.windlass.http() as http,
        http.stream("GET", url, params={"stream": "true"}, timeout=600) as answer,
    ):
        for line in answer.raise_for_status().iter_lines():
            if line.startswith("data: {"):
                event = json.loads(line.removeprefix("data: "))
                if event["type"] == "metrics":
                    seen.setdefault(event["data"]["step"], time.perf_counter())
    return seen
