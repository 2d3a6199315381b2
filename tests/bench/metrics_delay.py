"""From a step's end to its metrics in the stream of the job's events.

A step ends when the trainer's own line of it lies in the file that the runner reads, which a
thread looks at each few milliseconds; the stream is followed over HTTP meanwhile.
"""

import contextlib
import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from tests.bench.figures import Figure, Options, at_most, plain
from tests.bench.job_overhead import MODEL, create, training_file
from tests.bench.load import percentile
from tests.bench.plant import Plant, single

from windlass.demo.tiny_model import make_tiny_model

LOOK_SECONDS = 0.005
Times = dict[int, float]


async def measure(options: Options) -> list[Figure]:
    """Milliseconds of each step that the trainer told of."""
    with single({"log_level": "WARNING"}) as plant:
        with plant.client() as client:
            client.models.import_folder(MODEL, make_tiny_model(plant.folder / "base"))
        job_id = create(plant, training_file(plant, 300 if options.quick else 3000))
        with _told(plant.windlass.data) as told:
            seen = _followed(plant, job_id)
    delays = [1000 * (seen[step] - at) for step, at in told.items() if step in seen]
    if len(delays) < len(seen) / 2:
        raise RuntimeError(f"of {len(seen)} steps the file showed {len(told)} alone")
    return [
        at_most("metrics_delay_p99", percentile(delays, 0.99), "ms", 1000),
        plain("metrics_delay_p50", percentile(delays, 0.5), "ms"),
    ]


def _followed(plant: Plant, job_id: str) -> Times:
    """When each step's metrics came, until the job has ended."""
    seen: Times = {}
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


@contextlib.contextmanager
def _told(data: Path) -> Iterator[Times]:
    """When the trainer told of each step, while the block lasts."""
    told: Times = {}
    over = threading.Event()

    def look() -> None:
        read = 0
        while not over.wait(LOOK_SECONDS):
            for path in data.glob("**/trainer.jsonl"):
                with contextlib.suppress(FileNotFoundError), path.open("rb") as file:
                    file.seek(read)
                    *lines, _ = file.read().split(b"\n")
                    now = time.perf_counter()
                    for line in lines:
                        read += len(line) + 1
                        event = json.loads(line)
                        if event["event"] == "logged":
                            told.setdefault(event["step"], now)

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield told
    finally:
        over.set()
        thread.join()
