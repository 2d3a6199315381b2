"""From a job's creation to its first step, with a trainer that waits for it and without one.

Both servers have run a job before, so that what a trainer reads lies in the machine's memory. The
clock starts before the request that creates the job and ends when its trainer says that the first
step is done. The floor is that trainer's own command started bare, from its start to the end of
the same step. What a spare costs while it waits is measured beside it.
"""

import statistics
import time
from pathlib import Path

import psutil
from tests.bench import tuning
from tests.bench.bare import capture
from tests.bench.figures import Figure, Options, at_most, plain
from tests.bench.heard import heard, listen_until
from tests.bench.plant import Plant, single

MAX_SECONDS = 2.0
EXAMPLES = 300
# A spare is ready when nothing of it moves for so long.
STILL_SECONDS = 1.0


async def measure(options: Options) -> list[Figure]:
    """The medians of turns: a job on each server, and the trainer alone."""
    turns = 1 if options.quick else options.pairs
    warm, cold, alone = [], [], []
    with single(_settings(1)) as prepared, single(_settings(0)) as unprepared:
        files = {plant.folder: _prepare(plant) for plant in (prepared, unprepared)}
        # Of the server without a spare, whose trainer starts with its job.
        bare = capture(unprepared, files[unprepared.folder], backend="trl")
        for _ in range(turns):
            memory, processor = _spare(prepared)
            warm.append(_first_step(prepared, files[prepared.folder]))
            cold.append(_first_step(unprepared, files[unprepared.folder]))
            alone.append(bare.first_step())
    floor = statistics.median(alone)
    return [
        at_most("warm_job", statistics.median(warm), "s", MAX_SECONDS).beside(
            "bare trainer", floor
        ),
        plain("warm_job_worst", max(warm), "s"),
        plain("warm_job_without_spare", statistics.median(cold), "s").beside("bare trainer", floor),
        plain("warm_job_memory", memory / 2**20, "MiB of a spare"),
        plain("warm_job_processor", processor, "ms in a second of a spare that waits"),
    ]


def _settings(spares: int) -> dict[str, object]:
    return {"log_level": "WARNING", "agent": {"spare_trainers": spares}}


def _prepare(plant: Plant) -> str:
    """Runs a first job; answers the file that jobs train on."""
    tuning.import_model(plant)
    file = tuning.training_file(plant, EXAMPLES)
    _first_step(plant, file)
    return file


def _first_step(plant: Plant, file: str) -> float:
    """Seconds from the request to the end of the first step."""
    with heard(tuning.attempts(plant)) as trainers:
        began = time.perf_counter()
        job_id = tuning.create(plant, file)
        listen_until(lambda: any(trainer.steps for trainer in trainers.values()))
        (trainer,) = (each for each in trainers.values() if each.steps)
    tuning.cancel(plant, job_id)
    return min(trainer.steps.values()) - began


def _spare(plant: Plant) -> tuple[int, float]:
    """Bytes of a spare (shared ones by their share), once it waits, and ms of processor."""
    folder = plant.windlass.data / "agent" / "spares"
    listen_until(lambda: len(_waiting(plant, folder)) > 0)
    while True:
        members = _waiting(plant, folder)
        before = _used(members)
        time.sleep(STILL_SECONDS)
        moved = _used(members) - before
        # One that waits for a processor does not move either.
        asleep = all(each.status() == psutil.STATUS_SLEEPING for each in members)
        if asleep and moved < STILL_SECONDS / 50 and _has_trainer(members):
            return sum(each.memory_full_info().pss for each in members), 1000 * moved


def _waiting(plant: Plant, folder: Path) -> list[psutil.Process]:
    """The processes of the spare: whatever is below the one that names its folder."""
    server = psutil.Process(plant.pid())
    for child in server.children():
        if any(str(folder) in word for word in child.cmdline()):
            return [child, *child.children(recursive=True)]
    return []


def _has_trainer(members: list[psutil.Process]) -> bool:
    return any("--wait" in each.cmdline()[:5] for each in members)


def _used(members: list[psutil.Process]) -> float:
    return sum(sum(each.cpu_times()[:2]) for each in members if each.is_running())
