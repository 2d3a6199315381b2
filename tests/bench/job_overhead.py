"""A fine-tuning job through the platform, beside the same training without it.

The platform's time runs from the request that creates the job to `succeeded`: validation,
placement, inputs, training, checkpoints, upload and registration. Bare is the very command that
the platform's runner started, with its arguments and environment as the kernel shows them and
the model and dataset that it had prepared, in folders of its own.
"""

import contextlib
import itertools
import json
import random
import shutil
import statistics
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil
from tests.bench.figures import Figure, Options, plain
from tests.bench.plant import Plant, single

from windlass.demo import questions
from windlass.demo.tiny_model import make_tiny_model

ENTRY = "windlass_agent.runner.trl_entry"
MODEL = "bench-llama"
# Training alone takes longer than a minute with these on two cores; see `training_seconds`.
EXAMPLES, EPOCHS = 7000, 3
LEAST_SECONDS = 60.0
SLACK_SECONDS = 2.0
MOST = 1.05


@dataclass(frozen=True)
class Bare:
    """The trainer as the platform started it, moved to a folder of ours."""

    command: Sequence[str]
    environment: dict[str, str]
    folder: Path

    def run(self) -> float:
        """Seconds from its start to its end; raises CalledProcessError when it fails."""
        for name in ("output", "empty", "scratch"):
            shutil.rmtree(self.folder / name, ignore_errors=True)
            (self.folder / name).mkdir()
        shutil.rmtree(self.folder / "dataset-tokens", ignore_errors=True)
        (self.folder / "trainer.jsonl").unlink(missing_ok=True)
        began = time.perf_counter()
        with (self.folder / "log").open("wb") as log:
            subprocess.run(
                self.command,
                check=True,
                env=self.environment,
                cwd=self.folder / "empty",
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        return time.perf_counter() - began


async def measure(options: Options) -> list[Figure]:
    """The median over interleaved pairs, of which every other one begins with bare."""
    pairs = 1 if options.quick else options.pairs
    with single({"log_level": "WARNING"}) as plant:
        model = make_tiny_model(plant.folder / "base")
        with plant.client() as client:
            client.models.import_folder(MODEL, model)
        file = training_file(plant, 300 if options.quick else EXAMPLES)
        bare = _capture(plant, file)
        ours, alone = [], []
        for pair in range(pairs):
            if pair % 2:
                alone.append(bare.run())
            ours.append(_through(plant, file))
            if not pair % 2:
                alone.append(bare.run())
        training = _training_seconds(bare)
    return _figures(ours, alone, training)


def training_file(plant: Plant, examples: int) -> str:
    """Uploads so many conversations; answers the file's id."""
    source = random.Random(0)
    learn, _ = questions.split()
    rows = [source.choice(learn).to_row() for _ in range(examples)]
    path = plant.folder / "train.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    with plant.client() as client:
        return str(client.openai.files.create(file=path, purpose="fine-tune").id)


def create(plant: Plant, file: str) -> str:
    """Creates the job; answers its id."""
    with plant.client() as client:
        job = client.openai.fine_tuning.jobs.create(
            model=MODEL,
            training_file=file,
            seed=7,
            method={
                "type": "supervised",
                "supervised": {"hyperparameters": {"n_epochs": EPOCHS, "batch_size": 16}},
            },
        )
    return str(job.id)


def _through(plant: Plant, file: str) -> float:
    """Seconds from the creation of a job to its success."""
    began = time.perf_counter()
    job_id = create(plant, file)
    with plant.windlass.http() as http:
        while True:
            job = http.get(f"/v1/fine_tuning/jobs/{job_id}").raise_for_status().json()
            if job["status"] == "succeeded":
                return time.perf_counter() - began
            if job["status"] in ("failed", "cancelled"):
                raise RuntimeError(f"the job {job['status']}: {job['error']}")
            time.sleep(0.1)


def _capture(plant: Plant, file: str) -> Bare:
    """Takes command, environment and inputs from a job that is cancelled thereafter."""
    job_id = create(plant, file)
    trainer = _find_trainer(plant.pid())
    command, environment = trainer.cmdline(), trainer.environ()
    workdir = next(
        Path(value).parent for flag, value in itertools.pairwise(command) if flag == "--output_dir"
    )
    folder = plant.folder / "bare"
    folder.mkdir()
    shutil.copytree(workdir / "inputs" / "model", folder / "inputs" / "model")
    shutil.copytree(workdir / "dataset", folder / "dataset")
    with plant.client() as client:
        client.openai.fine_tuning.jobs.cancel(job_id)
    _wait_cancelled(plant, job_id)
    old, new = str(workdir), str(folder)
    moved = {name: value.replace(old, new) for name, value in environment.items()}
    return Bare([value.replace(old, new) for value in command], moved, folder)


def _find_trainer(server: int) -> psutil.Process:
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        for process in psutil.Process(server).children(recursive=True):
            with contextlib.suppress(psutil.Error):
                command = process.cmdline()
                # Not its tether, whose own command comes first.
                if ENTRY in command[:4]:
                    return process
        time.sleep(0.05)
    raise RuntimeError("the job's trainer did not start within two minutes")


def _wait_cancelled(plant: Plant, job_id: str) -> None:
    with plant.windlass.http() as http:
        while http.get(f"/v1/fine_tuning/jobs/{job_id}").json()["status"] != "cancelled":
            time.sleep(0.1)


def _training_seconds(bare: Bare) -> float:
    """How long the steps alone took in the last bare run, by TRL's own count."""
    runtime = 0.0
    for line in (bare.folder / "trainer.jsonl").read_text().splitlines():
        runtime = max(runtime, json.loads(line).get("logs", {}).get("train_runtime", 0.0))
    return runtime


def _figures(ours: list[float], alone: list[float], training: float) -> list[Figure]:
    excess = statistics.median(o - MOST * a for o, a in zip(ours, alone, strict=True))
    ratio = statistics.median(o / a for o, a in zip(ours, alone, strict=True))
    return [
        Figure(
            name="job_overhead",
            value=statistics.median(ours),
            unit="s",
            goal=f"≤ {MOST} x bare + {SLACK_SECONDS:g} s, median of {len(ours)}",
            met=excess <= SLACK_SECONDS and training >= LEAST_SECONDS,
            peer="bare",
            peer_value=statistics.median(alone),
            ratio=ratio,
        ),
        plain("job_overhead_excess", excess, "s beyond 1.05 x bare"),
        plain("job_training", training, "s of steps"),
    ]
