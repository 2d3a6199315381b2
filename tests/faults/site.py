"""An installation under fault: its jobs, its processes, and what must be true at the end."""

import json
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import httpx
import psutil
from tests.support.processes.windlass import Windlass
from tests.support.waiting import wait_until

from windlass.client import Windlass as Client
from windlass_agent.runner.protocol.trainer_events import METRICS_VARIABLE
from windlass_agent.runner.protocol.waiting import WAIT

T = TypeVar("T")
BASE = "tiny-llama"
ENDED = ("succeeded", "failed", "cancelled")
# Ten steps an epoch, and a checkpoint after each epoch.
ROWS, BATCH, STEPS_PER_EPOCH = 40, 4, 10

# What may live in a data folder, by a word of its command line.
RUNNER, TRAINER, ENGINE = "windlass_agent.runner", "trainers.trl.entry", "engines.builtin"
# In the folder of a runner that no attempt has taken.
SPARE = "/spares/"


@dataclass
class Site:
    """A running installation, asked through its public API alone. Reads survive an outage."""

    windlass: Windlass
    # Tokens of the jobs seen to their ends.
    trained_tokens: int = 0
    # Seconds between two looks at a job's end, each of which costs the server some work.
    every: float = 0.05

    @cached_property
    def http(self) -> httpx.Client:
        """One for all: a new client costs more processor time than its request."""
        return self.windlass.http()

    def get(self, path: str, **query: Any) -> dict[str, Any]:
        def ask() -> dict[str, Any] | None:
            with suppress(httpx.TransportError):
                answer = self.http.get(f"/v1{path}", params=query)
                if answer.status_code < 500:
                    assert answer.status_code == 200, answer.text
                    found: dict[str, Any] = answer.json()
                    return found
            return None

        return wait_until(ask, f"an answer to {path}", 60)

    def import_base(self, folder: Path) -> None:
        with Client(self.windlass.url, self.windlass.owner_key) as client:
            client.models.import_folder(BASE, folder, for_everyone=True)

    def upload(self) -> str:
        """A small training file; its id."""
        found = self.windlass.openai().files.create(
            file=("train.jsonl", training_rows()), purpose="fine-tune"
        )
        return str(found.id)

    def create(self, file_id: str, *, epochs: int = 4, **windlass: Any) -> str:
        """A job; its id. `windlass` is what goes into the field of that name."""
        hyperparameters = {"n_epochs": epochs, "batch_size": BATCH}
        job = self.windlass.openai().fine_tuning.jobs.create(
            model=BASE,
            training_file=file_id,
            seed=5,
            method={"type": "supervised", "supervised": {"hyperparameters": hyperparameters}},
            extra_body={"windlass": windlass} if windlass else None,
        )
        return str(job.id)

    def job(self, job_id: str) -> dict[str, Any]:
        return self.get(f"/fine_tuning/jobs/{job_id}")

    def events(self, job_id: str) -> list[dict[str, Any]]:
        """All of them, in order."""
        found = self.get(f"/fine_tuning/jobs/{job_id}/events", limit=100)
        events: list[dict[str, Any]] = found["data"]
        while found["has_more"]:
            after = events[-1]["id"]
            found = self.get(f"/fine_tuning/jobs/{job_id}/events", limit=100, after=after)
            events += found["data"]
        return events[::-1]

    def steps(self, job_id: str) -> list[int]:
        """The step of each metrics event with a training loss, in order."""
        return [
            event["data"]["step"]
            for event in self.events(job_id)
            if event["type"] == "metrics" and event["data"].get("train_loss") is not None
        ]

    def checkpoints(self, job_id: str) -> list[int]:
        found = self.get(f"/fine_tuning/jobs/{job_id}/checkpoints", limit=100)["data"]
        return [checkpoint["step_number"] for checkpoint in found]

    def until_trained(self, job_id: str, *, step: int = 2) -> None:
        """Until the job has made that many steps; fails when it has ended."""

        def far_enough() -> bool:
            job = self.job(job_id)
            assert job["status"] not in ENDED, (job["error"], self.windlass.logs())
            return bool(job["windlass"]["progress"]["step"] >= step)

        try:
            wait_until(far_enough, f"step {step} of {job_id}")
        except TimeoutError as error:
            error.add_note(f"{self.job(job_id)}\n{self.windlass.logs()}")
            raise

    def until_checkpoint(self, job_id: str) -> None:
        """Until the state of some step is stored, from which training can go on."""
        wait_until(lambda: self.checkpoints(job_id), f"a checkpoint of {job_id}")

    def until_ended(self, job_id: str, status: str = "succeeded") -> dict[str, Any]:
        def ended() -> dict[str, Any] | None:
            job = self.job(job_id)
            return job if job["status"] in ENDED else None

        job = wait_until(ended, f"the end of {job_id}", every=self.every)
        log = self.windlass.logs()
        assert job["status"] == status, (job["status"], job["error"], log)
        return job

    def assert_succeeded_once(self, job_id: str) -> dict[str, Any]:
        """Waits for the end: one model, one last word, every step once told, tokens counted once.

        And nothing of the job runs any more.
        """
        job = self.until_ended(job_id)
        events = self.events(job_id)
        last_words = [e for e in events if "successfully completed" in e["message"]]
        assert len(last_words) == 1, [e["message"] for e in events]
        assert events[-1] == last_words[0]
        created = [e for e in events if e["message"].startswith("New fine-tuned model created")]
        assert len(created) == 1
        assert len({event["id"] for event in events}) == len(events)
        models = [m for m in self.get("/models")["data"] if m["windlass"]["job_id"] == job_id]
        final = [m["id"] for m in models if not m["windlass"]["is_checkpoint"]]
        assert final == [job["fine_tuned_model"]]
        self._assert_checkpoints_are_models(job_id)
        assert len(job["result_files"]) == 1
        self.assert_no_process(job_id)
        self._assert_accounted(job)
        return job

    def _assert_checkpoints_are_models(self, job_id: str) -> None:
        """Each checkpoint is a model, once those that retention drops are gone from both lists."""

        def agree() -> bool:
            listed = self.get(f"/fine_tuning/jobs/{job_id}/checkpoints", limit=100)["data"]
            checkpoints = sorted(one["fine_tuned_model_checkpoint"] for one in listed)
            assert len(checkpoints) == len(set(checkpoints))
            models = [m for m in self.get("/models")["data"] if m["windlass"]["is_checkpoint"]]
            mine = [m["id"] for m in models if m["windlass"]["job_id"] == job_id]
            return sorted(mine) == checkpoints

        wait_until(agree, f"the checkpoints of {job_id} to be its models")

    def _assert_accounted(self, job: dict[str, Any]) -> None:
        self.trained_tokens += job["trained_tokens"]
        wait_until(lambda: self.usage_of(BASE)[1] >= self.trained_tokens, "the job's usage", 15)
        assert self.usage_of(BASE)[1] == self.trained_tokens

    def assert_failed_once(self, job_id: str) -> dict[str, Any]:
        """Waits for the end: one last word with a reason, no model."""
        job = self.until_ended(job_id, "failed")
        assert job["error"]["code"]
        assert job["error"]["message"]
        said = [e for e in self.events(job_id) if e["message"].startswith("The job failed")]
        assert len(said) == 1
        assert job["fine_tuned_model"] is None
        models = self.get("/models")["data"]
        assert not [
            m["id"]
            for m in models
            if m["windlass"]["job_id"] == job_id and not m["windlass"]["is_checkpoint"]
        ]
        self.assert_no_process(job_id)
        if job["trained_tokens"]:
            self._assert_accounted(job)
        return job

    def usage_of(self, model: str, kind: str = "training") -> tuple[int, int]:
        """Records and input tokens of a model."""
        found = self.get("/usage", start_time=int(time.time()) - 86400, group_by=["model", "kind"])
        rows = [
            row
            for bucket in found["data"]
            for row in bucket["results"]
            if (row["model"], row["kind"]) == (model, kind)
        ]
        return sum(r["num_model_requests"] for r in rows), sum(r["input_tokens"] for r in rows)

    def assert_no_process(self, of: str = "") -> None:
        """Nothing that an agent started runs any more (`of` a job)."""

        def left() -> list[psutil.Process]:
            served = any(one.poll() is None for one in self.windlass.processes.values())
            # A runner that waits for another job ends with the server.
            return self.processes(of) + ([] if of or served else self.processes(SPARE))

        wait_until(lambda: not left(), f"the end of {[cmdline(p) for p in left()]}", 30)

    def processes(self, *words: str) -> list[psutil.Process]:
        """Living runners, trainers and engines of this data folder that bear all words.

        Of runners that no attempt has taken, and their trainers, only if that is one of the words.
        """
        attempts = self._attempts()
        found = []
        for process in psutil.process_iter():
            line = " ".join([*cmdline(process), *told(process)])
            for folder, attempt in attempts.items():
                line = line.replace(folder, attempt)
            ours = str(self.windlass.data) in line
            kinds = any(kind in line for kind in (RUNNER, TRAINER, ENGINE))
            waits = SPARE in line and SPARE not in words
            if ours and kinds and not waits and all(word in line for word in words):
                found.append(process)
        return found

    def _attempts(self) -> dict[str, str]:
        """The folders of attempts that took a spare, by those of the spares."""
        folders = self.windlass.data.glob("*/workloads/*")
        return {str(one.resolve()): str(one) for one in folders if one.is_symlink()}

    def runner(self, job_id: str) -> psutil.Process:
        """The one runner of a job, within its walls."""
        return wait_until(lambda: self._only(job_id, RUNNER, "--workdir"), "a runner")

    def engine(self) -> psutil.Process:
        """The one engine that runs."""
        return wait_until(lambda: self._only(ENGINE), "an engine")

    def trainer(self, job_id: str) -> psutil.Process:
        return wait_until(lambda: self._only(job_id, TRAINER), "a trainer")

    def _only(self, *words: str) -> psutil.Process | None:
        """The one process, once there is no other: what it forks bears its words until it execs."""
        found = [one for one in self.processes(*words) if not is_wall(one)]
        return found[0] if len(found) == 1 else None


def cmdline(process: psutil.Process) -> list[str]:
    """A process's command line; empty when it is gone or a zombie."""
    with suppress(psutil.Error):
        if process.status() != psutil.STATUS_ZOMBIE:
            return list(process.cmdline())
    return []


def told(process: psutil.Process) -> list[str]:
    """The output folder that a waiting trainer read later than its command line."""
    with suppress(psutil.Error):
        if WAIT in cmdline(process):
            return [process.environ().get(METRICS_VARIABLE, "")]
    return []


def is_wall(process: psutil.Process) -> bool:
    """Tells a program that builds or holds walls from the Python within, whose words it bears."""
    return not Path(next(iter(cmdline(process)), "")).name.startswith("python")


@contextmanager
def frozen(process: psutil.Process) -> Iterator[None]:
    """Holds a process still, so that nothing races with what happens meanwhile."""
    process.suspend()
    try:
        yield
    finally:
        with suppress(psutil.Error):
            process.resume()


def kill(process: psutil.Process) -> None:
    """kill -9 of one process alone."""
    os.kill(process.pid, signal.SIGKILL)


def postmaster(data: Path) -> psutil.Process:
    """The Postgres of a data folder."""
    home = data / "postgres"
    if (home / "moved-to").exists():
        home = Path((home / "moved-to").read_text().strip())
    pid = int((home / "cluster" / "postmaster.pid").read_text().split()[0])
    return psutil.Process(pid)


def training_rows(count: int = ROWS) -> bytes:
    """Chat examples, one a line."""
    rows = [
        {
            "messages": [
                {"role": "user", "content": f"I have {number} apples. How many?"},
                {"role": "assistant", "content": f"You have {number}."},
            ]
        }
        for number in range(count)
    ]
    return "".join(json.dumps(row) + "\n" for row in rows).encode()
