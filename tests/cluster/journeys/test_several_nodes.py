"""Two pods train one model: what one pod would have learned, and on from a checkpoint."""

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.cluster.fixtures import Clusters
from tests.cluster.stages.journey import BASE, JOB_BYTES, Journey, platform
from tests.support.environments import made_once
from tests.support.environments.postgres import reachable_folder, remove_database
from tests.support.processes.windlass import running
from tests.support.waiting import wait_until

from windlass.client import Windlass as Client
from windlass.demo.questions import split

pytestmark = [pytest.mark.torch, pytest.mark.long, pytest.mark.timeout(1500)]
TEAM = "team-of-two"
# Whole batches, so that each node has as many examples as the other.
EXAMPLES = 48
# Sums in another order; dropout is off, which each process would draw anew.
TOLERANCE = 5e-3


@pytest.fixture(scope="module")
def journey(clusters: Clusters) -> Iterator[Journey]:
    with contextlib.ExitStack() as stack:
        found = {"east": stack.enter_context(clusters.open("east"))}
        folder = stack.enter_context(reachable_folder())
        windlass, address = stack.enter_context(platform(folder, found))
        stack.callback(remove_database, windlass.data)
        stack.enter_context(running(windlass))
        made = Journey(windlass, stack.enter_context(windlass.http()), found, address)
        made.join("east", folder / "east", stack)
        # Room for the two pods of one job.
        made.share_out("east", memory=2 * JOB_BYTES)
        with Client(windlass.url, windlass.owner_key) as client:
            client.models.import_folder(BASE, made_once.tiny_model(), for_everyone=True)
        made.team(TEAM, "east")
        yield made


def train(journey: Journey, folder: Path, *, nodes: int, epochs: int) -> str:
    """A job through openai-python, on so many nodes."""
    client = journey.windlass.openai(journey.projects[TEAM].key)
    path = folder / "train.jsonl"
    rows = [one.to_row() for one in split()[0][:EXAMPLES]]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    file = client.files.create(file=path, purpose="fine-tune")
    hyperparameters: Any = {"n_epochs": epochs, "batch_size": 8}
    wishes = {"resources": {"nodes": nodes}, "config": {"dropout": 0.0}}
    job = client.fine_tuning.jobs.create(
        model=BASE,
        training_file=file.id,
        seed=5,
        method={"type": "supervised", "supervised": {"hyperparameters": hyperparameters}},
        extra_body={"windlass": wishes},
    )
    return str(job.id)


def losses(journey: Journey, job_id: str) -> dict[int, float]:
    """The loss of each step, by the events that a client sees."""
    path = f"/fine_tuning/jobs/{job_id}/events?limit=500"
    listed = journey.json("GET", path, key=journey.projects[TEAM].key)["data"]
    told = [event["data"] for event in listed if event["type"] == "metrics"]
    return {int(one["step"]): one["train_loss"] for one in told if "train_loss" in one}


def checkpoints(journey: Journey, job_id: str) -> list[Any]:
    path = f"/fine_tuning/jobs/{job_id}/checkpoints"
    found: list[Any] = journey.json("GET", path, key=journey.projects[TEAM].key)["data"]
    return found


def pods(journey: Journey, job_id: str) -> dict[str, str]:
    """Names of the pods that run, by their index."""
    selector = f"windlass.dev/job={job_id}"
    namespace = journey.projects[TEAM].namespace
    items = journey.clusters["east"].get("pods", "-n", namespace, "-l", selector)["items"]
    index = "batch.kubernetes.io/job-completion-index"
    return {
        pod["metadata"]["annotations"].get(index, "0"): pod["metadata"]["name"]
        for pod in items
        if pod["status"]["phase"] == "Running"
    }


def test_two_pods_learn_what_one_does(journey: Journey, tmp_path: Path) -> None:
    alone = train(journey, tmp_path, nodes=1, epochs=1)
    journey.reach(alone, TEAM, "succeeded")
    together = train(journey, tmp_path, nodes=2, epochs=1)
    journey.reach(together, TEAM, "running")
    wait_until(lambda: len(pods(journey, together)) == 2, "two pods run", 120)
    job = journey.reach(together, TEAM, "succeeded")
    expected = losses(journey, alone)
    assert set(expected) == set(range(1, EXAMPLES // 8 + 1))
    assert losses(journey, together) == pytest.approx(expected, rel=TOLERANCE, abs=TOLERANCE)
    assert job["fine_tuned_model"]


def test_a_pod_is_killed_and_the_job_goes_on(journey: Journey, tmp_path: Path) -> None:
    job = train(journey, tmp_path, nodes=2, epochs=20)
    journey.reach(job, TEAM, "running")
    wait_until(lambda: checkpoints(journey, job), "a checkpoint to resume from", 480)
    namespace = journey.projects[TEAM].namespace
    killed = pods(journey, job)["1"]
    force = ("--grace-period=0", "--force", "--wait=false")
    journey.clusters["east"].kubectl("delete", "pod", killed, "-n", namespace, *force)
    journey.reach(job, TEAM, "succeeded", seconds=700)
    told = " | ".join(journey.events(job, TEAM))
    assert "Training continues after step" in told, told
    steps = losses(journey, job)
    assert set(steps) == set(range(1, 20 * EXAMPLES // 8 + 1))
    assert steps[max(steps)] < steps[1] / 2
