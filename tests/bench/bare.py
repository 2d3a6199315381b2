"""A trainer without the platform: the very command that the platform's runner started.

Arguments and environment are as the kernel shows them, model and dataset as the runner had
prepared them, in folders of its own.
"""

import shutil
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.bench import tuning
from tests.bench.heard import Trainer, heard, listen_until
from tests.bench.plant import Plant

from windlass_agent.runner.protocol.trainer_events import METRICS_VARIABLE

ENTRIES = {
    "trl": "windlass_agent.runner.trainers.trl.entry",
    "torchtune": "windlass_agent.runner.trainers.torchtune.entry",
}


@dataclass(frozen=True)
class Bare:
    """The trainer as the platform started it, moved to a folder of ours."""

    command: Sequence[str]
    environment: dict[str, str]
    folder: Path

    def run(self) -> tuple[float, Trainer]:
        """Seconds from its start to its end, and what it said; raises CalledProcessError."""
        with self._started() as (process, trainer):
            began = time.perf_counter()
            code = process.wait()
            seconds = time.perf_counter() - began
        if code:
            raise subprocess.CalledProcessError(code, self.command)
        return seconds, trainer

    def first_step(self) -> float:
        """Seconds from its start to the end of its first step, where it is ended."""
        with self._started() as (process, trainer):
            began = time.perf_counter()
            listen_until(lambda: bool(trainer.steps) or process.poll() is not None)
            process.kill()
            process.wait()
        return min(trainer.steps.values()) - began

    @contextmanager
    def _started(self) -> Iterator[tuple["subprocess.Popen[bytes]", Trainer]]:
        for name in ("output", "empty", "scratch"):
            shutil.rmtree(self.folder / name, ignore_errors=True)
            (self.folder / name).mkdir()
        shutil.rmtree(self.folder / "dataset-tokens", ignore_errors=True)
        (self.folder / "trainer.jsonl").unlink(missing_ok=True)
        with heard(self.folder.parent) as trainers, (self.folder / "log").open("wb") as log:
            listen_until(lambda: self.folder in trainers)
            process = subprocess.Popen(
                self.command,
                env=self.environment,
                cwd=self.folder / "empty",
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
            yield process, trainers[self.folder]


def capture(plant: Plant, file: str, *, backend: str) -> Bare:
    """Takes command, environment and inputs from a job that is cancelled thereafter."""
    job_id = tuning.create(plant, file, backend=backend)
    trainer = tuning.process(plant, ENTRIES[backend])
    command, environment = trainer.cmdline(), trainer.environ()
    workdir = Path(environment[METRICS_VARIABLE]).parent
    folder = plant.folder / "bare" / "attempt"
    folder.mkdir(parents=True)
    shutil.copytree(workdir / "inputs" / "model", folder / "inputs" / "model")
    shutil.copytree(workdir / "dataset", folder / "dataset")
    tuning.cancel(plant, job_id)
    old, new = str(workdir), str(folder)
    moved = {name: value.replace(old, new) for name, value in environment.items()}
    return Bare([value.replace(old, new) for value in command], moved, folder)
