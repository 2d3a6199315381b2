"""Jobs of two backends under one quota of Kueue; what it takes back learns on, bit for bit."""

import contextlib
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.cluster.fixtures import Clusters
from tests.cluster.stages.journey import BASE, JOB_BYTES, Journey, platform
from tests.support.environments import made_once
from tests.support.environments.postgres import reachable_folder, remove_database
from tests.support.environments.torchtune_env import torchtune_python
from tests.support.processes.windlass import running
from tests.support.waiting import wait_until

from windlass.client import Windlass as Client
from windlass.demo.questions import split

pytestmark = [pytest.mark.torch, pytest.mark.long, pytest.mark.timeout(1500)]
BACKENDS = ("trl", "torchtune")
TEAM, URGENT = "two-backends", "more-urgent"
# Jobs that the quota holds.
ROOM = 4
# Many enough that none has ended before all run, and before those to be preempted are.
EPOCHS, STEPS = 12, 12 * 17
# What is the same to the last bit whenever the same step is made.
EXACT = ("train_loss", "learning_rate", "grad_norm")


@dataclass(frozen=True)
class Shared:
    """The platform, its one cluster, and what a test asks of both."""

    journey: Journey
    rows: Path

    def client(self, team: str = TEAM) -> Any:
        return self.journey.windlass.openai(self.journey.projects[team].key)

    def train(self, backend: str, *, team: str = TEAM, **resources: int) -> str:
        """A job through openai-python; all have the same seed."""
        client = self.client(team)
        file = client.files.create(file=self.rows, purpose="fine-tune")
        hyperparameters: Any = {"n_epochs": EPOCHS, "batch_size": 8}
        job = client.fine_tuning.jobs.create(
            model=BASE,
            training_file=file.id,
            seed=5,
            method={"type": "supervised", "supervised": {"hyperparameters": hyperparameters}},
            extra_body={"windlass": {"backend": backend, "resources": resources}},
        )
        return str(job.id)

    def measured(self, job: str) -> list[tuple[int, tuple[float, ...]]]:
        """Every step that was made, by any attempt, with what it measured."""
        return [
            (int(event.data["step"]), tuple(event.data[name] for name in EXACT))
            for event in self.client().fine_tuning.jobs.list_events(job, limit=100)
            if event.type == "metrics" and "train_loss" in event.data
        ]

    def has_saved(self, job: str) -> bool:
        return bool(self.client().fine_tuning.jobs.checkpoints.list(job).data)

    def admitted(self) -> int:
        """The number of workloads that hold quota, as Kueue counts them."""
        queue = self.journey.clusters["east"].get("clusterqueue", self.journey.queue)
        return int(queue["status"].get("admittedWorkloads", 0))

    def all_run(self, jobs: list[str]) -> bool:
        """True where each of these jobs has a pod that runs now; fails once one has ended."""
        namespace = self.journey.projects[TEAM].namespace
        pods = self.journey.clusters["east"].get("pods", "-n", namespace)["items"]
        alive = [one for one in pods if one["status"]["phase"] == "Running"]
        for job in jobs:
            state = self.journey.job(job, TEAM)["windlass"]["state"]
            assert state not in ("succeeded", "failed"), self.journey.events(job, TEAM)[-9:]
        return set(jobs) <= {one["metadata"]["labels"].get("windlass.dev/job") for one in alive}


@pytest.fixture(scope="module")
def shared(clusters: Clusters) -> Iterator[Shared]:
    python = torchtune_python()
    with contextlib.ExitStack() as stack:
        found = {"east": stack.enter_context(clusters.open("east"))}
        folder = stack.enter_context(reachable_folder())
        windlass, address = stack.enter_context(platform(folder, found))
        stack.callback(remove_database, windlass.data)
        stack.enter_context(running(windlass))
        made = Journey(windlass, stack.enter_context(windlass.http()), found, address)
        made.join("east", folder / "east", stack, torchtune=python)
        made.share_out("east", memory=ROOM * JOB_BYTES)
        with Client(windlass.url, windlass.owner_key) as client:
            client.models.import_folder(BASE, made_once.tiny_model(), for_everyone=True)
        made.team(TEAM, "east")
        made.team(URGENT, "east", urgent=True)
        rows = folder / "train.jsonl"
        rows.write_text("".join(json.dumps(one.to_row()) + "\n" for one in split()[0]))
        yield Shared(made, rows)


def test_two_of_each_backend_run_at_once_and_whom_kueue_preempts_learns_the_same(
    shared: Shared,
) -> None:
    steady = [shared.train(backend) for backend in BACKENDS]
    # Kueue preempts the newest first, by times in whole seconds.
    wait_until(lambda: shared.admitted() == len(steady), "two jobs are admitted")
    second = int(time.time())
    wait_until(lambda: time.time() >= second + 1, "a second later")
    later = [shared.train(backend) for backend in BACKENDS]
    together = [*steady, *later]
    wait_until(
        lambda: shared.admitted() == ROOM and shared.all_run(together), "four run at once", 120
    )
    wait_until(lambda: all(map(shared.has_saved, later)), "checkpoints to resume from", 300)
    preempt(shared, later)
    for backend, untouched, preempted in zip(BACKENDS, steady, later, strict=True):
        jobs = [shared.journey.reach(one, TEAM, "succeeded") for one in (untouched, preempted)]
        assert [job["windlass"]["backend"] for job in jobs] == [backend] * 2
        assert [job["windlass"]["attempt"] for job in jobs] == [1, 2]
        told = " | ".join(shared.journey.events(preempted, TEAM))
        assert "Training continues after step" in told, told
        curve, again = shared.measured(untouched), shared.measured(preempted)
        assert {step for step, _ in curve} == set(range(1, STEPS + 1))
        assert set(again) == set(curve)
        # TRL saves where it is stopped; TorchTune goes back to the end of an epoch.
        assert len(again) == STEPS or backend == "torchtune"
        models = [shared.client().models.retrieve(job["fine_tuned_model"]) for job in jobs]
        assert [model.windlass["kind"] for model in models] == ["adapter"] * 2


def preempt(shared: Shared, jobs: list[str]) -> None:
    """Has an urgent job take the place of these, and give it back."""
    # As much as is free, if any other has ended by now, and that of two.
    free = ROOM - shared.admitted()
    urgent = shared.train("trl", team=URGENT, memory_bytes=(free + len(jobs)) * JOB_BYTES)
    for job in jobs:
        shared.journey.reach(job, TEAM, "queued", seconds=120)
        told = shared.journey.events(job, TEAM)
        assert any("reempt" in line for line in told), told

    def waits() -> bool:
        queues = [shared.journey.job(job, TEAM)["windlass"]["queue"] for job in jobs]
        return all("insufficient unused quota" in (one["reason"] or "") for one in queues)

    wait_until(waits, "they say why they wait", 120)
    shared.client(URGENT).fine_tuning.jobs.cancel(urgent)
