"""A real runner and its trackers: a real MLflow, W&B as we know it, and one that never answers."""

import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from uuid import uuid4

import pytest
from tests.integration.runner.cases import Case
from tests.support.environments import mlflow_server
from tests.support.environments.mlflow_server import PASSWORD, USER, MlflowServer
from tests.support.fakes.trackers import Silent, WandbFake

from windlass.api.runner.v1 import runner_pb2 as pb

pytestmark = pytest.mark.torch
KEY = "0123456789abcdef-of-a-test"


@pytest.fixture(scope="module")
def mlflow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MlflowServer]:
    with mlflow_server.running(tmp_path_factory.mktemp("mlflow")) as made:
        yield made


@pytest.fixture
async def wandb() -> AsyncIterator[WandbFake]:
    made = WandbFake(KEY)
    yield made
    await made.stop()


def tracker(kind: str, url: str, secret: str, **config: str) -> pb.Tracker:
    document = json.dumps(config).encode()
    return pb.Tracker(type=kind, config=document, url=url, secret=secret.encode())


def messages(case: Case) -> str:
    return "\n".join(event.message for _, event in sorted(case.agent.events.items()))


async def test_two_attempts_are_one_run(case: Case, mlflow: MlflowServer, wandb: WandbFake) -> None:
    # Far more than are made before the stop, however late a busy MLflow has the run.
    case.assign(max_steps=100_000)
    experiment = f"runner-{uuid4().hex}"
    own = {"experiment": experiment, "username": USER}
    case.agent.assignment.trackers.extend(
        [
            tracker("mlflow", mlflow.url, PASSWORD, **own),
            tracker("wandb", await wandb.start(), KEY, project="ships"),
        ]
    )
    runner = await case.start()
    await case.until(lambda: len(case.agent.values("train_loss")) >= 3)
    await case.until(lambda: mlflow.runs(experiment))
    runner.terminate()
    assert await runner.wait() == 143
    (run,) = mlflow.runs(experiment)
    assert run["info"]["status"] == "KILLED"
    assert run["info"]["run_name"] == "ftjob-1"
    before = messages(case)
    state = max(case.agent.of_kind(pb.ARTIFACT_KIND_TRAINING_STATE), key=lambda each: each.step)
    first = case.agent.values("train_loss")

    case.resume_from(state.step, max_steps=state.step + 2)
    runner = await case.start()
    assert await runner.wait() == 0, case.log()
    (again,) = mlflow.runs(experiment)
    assert again["info"]["run_id"] == run["info"]["run_id"]
    assert again["info"]["status"] == "FINISHED"
    losses = [*first, *case.agent.values("train_loss")]
    assert mlflow.history(run["info"]["run_id"], "train_loss") == list(enumerate(losses, 1))
    shown = wandb.runs["ftjob-1"]
    assert [row["train_loss"] for row in shown.history] == losses
    assert shown.end == {"complete": True, "exitcode": 0}
    for text in (before, messages(case), case.log(), *_stored(case)):
        assert PASSWORD not in text
        assert KEY not in text
    assert "MLflow shows this job at" in before


async def test_a_job_whose_trackers_fail_it_succeeds(case: Case, mlflow: MlflowServer) -> None:
    silent = Silent()
    case.assign(max_steps=2)
    case.agent.assignment.trackers.extend(
        [
            tracker("mlflow", mlflow.url, "wrong", experiment="e", username=USER),
            tracker("wandb", await silent.start(), KEY, project="p"),
            pb.Tracker(type="tensorboard", problem="It is gone."),
        ]
    )
    runner = await case.start()
    try:
        assert await runner.wait() == 0, case.log()
    finally:
        await silent.stop()
    assert case.agent.finish is not None
    assert case.agent.finish.outcome == pb.OUTCOME_SUCCEEDED
    warnings = [
        event.message
        for event in case.agent.events.values()
        # Said as well where training takes longer than a few tries.
        if event.level == pb.LEVEL_WARN and "retrying" not in event.message
    ]
    assert sorted(warnings) == [
        "A tracker receives no reports of this job: It is gone.",
        "MLflow receives no more reports of this job: it answered 401.",
        "Weights & Biases did not take everything before the job ended.",
    ]
    assert len(case.agent.values("train_loss")) == 2


def _stored(case: Case) -> Iterator[str]:
    for root in (case.agent.store, Path(case.workdir).parent):
        for path in root.rglob("*"):
            if path.is_file():
                yield path.read_bytes().decode(errors="replace")
