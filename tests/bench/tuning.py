"""Fine-tuning jobs of a tiny model, as the subjects on training have them."""

import contextlib
import json
import random
from collections.abc import Collection
from pathlib import Path
from typing import Any

import psutil
from tests.bench.heard import listen_until
from tests.bench.plant import Plant
from tests.support.waiting import wait_until

from windlass.confinement import innermost
from windlass.demo import questions
from windlass.demo.tiny_model import make_tiny_model

MODEL = "bench-llama"
EPOCHS, BATCH = 3, 16
_FINAL = ("succeeded", "failed", "cancelled")
_START_SECONDS = 120
_JOB_SECONDS = 3600


def attempts(plant: Plant) -> Path:
    """The folder of the agent's attempts, once it has none of earlier ones."""
    folder = plant.windlass.data / "agent" / "workloads"
    listen_until(lambda: not any(folder.glob("*/")))
    return folder


def import_model(plant: Plant) -> None:
    """Brings in the model that jobs train."""
    model = make_tiny_model(plant.folder / "base")
    with plant.client() as client:
        client.models.import_folder(MODEL, model)


def training_file(plant: Plant, examples: int) -> str:
    """Uploads so many conversations; answers the file's id."""
    source = random.Random(0)
    learn, _ = questions.split()
    rows = [source.choice(learn).to_row() for _ in range(examples)]
    path = plant.folder / "train.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    with plant.client() as client:
        return str(client.openai.files.create(file=path, purpose="fine-tune").id)


def create(plant: Plant, file: str, *, backend: str = "trl") -> str:
    """Creates a job of `EPOCHS` epochs; answers its id."""
    hyperparameters = {"n_epochs": EPOCHS, "batch_size": BATCH}
    method: Any = {"type": "supervised", "supervised": {"hyperparameters": hyperparameters}}
    with plant.client() as client:
        job = client.openai.fine_tuning.jobs.create(
            model=MODEL,
            training_file=file,
            seed=7,
            method=method,
            extra_body={"windlass": {"backend": backend}},
        )
    return str(job.id)


def cancel(plant: Plant, job_id: str) -> None:
    """Cancels a job and waits until it is."""
    with plant.client() as client:
        client.openai.fine_tuning.jobs.cancel(job_id)
    wait(plant, job_id, ["cancelled"])


def wait(plant: Plant, job_id: str, statuses: Collection[str]) -> None:
    """Returns once the job has one of the statuses; raises RuntimeError if it ends otherwise."""
    with plant.windlass.http() as http:

        def reached() -> bool:
            job = http.get(f"/v1/fine_tuning/jobs/{job_id}").raise_for_status().json()
            if job["status"] in statuses:
                return True
            if job["status"] in _FINAL:
                raise RuntimeError(f"the job {job['status']}: {job['error']}")
            return False

        wait_until(reached, f"the job to be {statuses}", _JOB_SECONDS)


def runner(plant: Plant, job_id: str) -> psutil.Process:
    """The runner of a job's newest attempt, within its walls."""
    records = (plant.windlass.data / "agent" / "workloads").glob(f"{job_id}-*.json")
    newest = max(records, key=lambda path: path.stat().st_mtime)
    return psutil.Process(innermost(json.loads(newest.read_text())["pid"]))


def process(plant: Plant, module: str) -> psutil.Process:
    """The process under the server that runs a module; waits until there is one."""

    def found() -> psutil.Process | None:
        for each in psutil.Process(plant.pid()).children(recursive=True):
            with contextlib.suppress(psutil.Error):
                # Not its tether, whose own command comes first.
                if module in each.cmdline()[:5]:
                    return each
        return None

    return wait_until(found, module, _START_SECONDS, every=0.05)
