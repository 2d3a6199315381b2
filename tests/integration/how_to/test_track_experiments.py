"""The how-to on trackers, run as it is printed: a whole server, and a real MLflow."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tests.integration.how_to.test_training_methods import succeeded, write
from tests.support.environments import mlflow_server
from tests.support.environments.mlflow_server import PASSWORD, MlflowServer
from tests.support.folders import files_with
from tests.support.processes import pages
from tests.support.processes.shell import PROGRAM, Shell
from tests.support.processes.windlass import NO_SPARE, Windlass, make_single, running

from windlass.client import Windlass as Client
from windlass.demo.questions import split

pytestmark = pytest.mark.torch
PAGE = "how-to/track-experiments.md"
PRINTED = "https://mlflow.example.com"


@pytest.fixture(scope="module")
def mlflow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MlflowServer]:
    with mlflow_server.running(tmp_path_factory.mktemp("mlflow")) as made:
        yield made


@pytest.fixture(scope="module")
def server(
    tmp_path_factory: pytest.TempPathFactory, tiny_model: Path, mlflow: MlflowServer
) -> Iterator[Windlass]:
    settings = NO_SPARE | {"tracking": {"allowed": [mlflow.url]}}
    with running(make_single(tmp_path_factory.mktemp("tracking") / "data", settings)) as made:
        with Client(made.url, made.owner_key) as client:
            client.models.import_folder("my-base", tiny_model)
        yield made


def test_the_page_on_trackers_is_true(
    server: Windlass, mlflow: MlflowServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "password.txt").write_text(PASSWORD)
    shell = Shell(server, tmp_path)
    environment = shell.environment | shell.owner
    environment["PATH"] = f"{Path(PROGRAM[0]).parent}:{environment['PATH']}"
    shown = pages.run(pages.script(PAGE, until="Name the trackers"), environment, tmp_path)
    assert "mlflow" in shown
    (tmp_path / "password.txt").unlink()

    write(tmp_path / "chat.jsonl", [question.to_row() for question in split()[0][:16]])
    client = server.openai()
    scope: dict[str, Any] = {"client": client}
    create, see, fetch = pages.blocks(PAGE, "python")
    exec(create.replace(PRINTED, mlflow.url), scope)
    asked = scope["job"].to_dict()["integrations"]
    assert asked[0]["mlflow"]["tags"] == {"team": "cats"}
    assert asked[1] == {"type": "tensorboard"}
    job = succeeded(client, scope["job"])
    exec(see, scope)
    told = str([one.message for one in client.fine_tuning.jobs.list_events(job.id, limit=100)])
    (run,) = mlflow.runs("colors") or pytest.fail(told)
    assert run["info"]["run_id"] in told
    _is_the_run(client, job, run, mlflow)
    exec(fetch, scope)
    _is_drawn(client, job, tmp_path)
    _is_stored_nowhere(server, tmp_path)


def losses(client: Any, job: Any) -> list[tuple[int, float]]:
    events = client.fine_tuning.jobs.list_events(job.id, limit=100)
    return sorted(
        (event.data["step"], event.data["train_loss"])
        for event in events
        if event.type == "metrics" and "train_loss" in event.data
    )


def _is_the_run(client: Any, job: Any, run: Any, mlflow: MlflowServer) -> None:
    assert (run["info"]["status"], run["info"]["run_name"]) == ("FINISHED", "first try")
    tags = {tag["key"]: tag["value"] for tag in run["data"]["tags"]}
    assert (tags["team"], tags["windlass.job_id"]) == ("cats", job.id)
    assert tags["windlass.fine_tuned_model"] == job.fine_tuned_model
    params = {each["key"]: each["value"] for each in run["data"]["params"]}
    assert (params["base_model"], params["epochs"]) == ("my-base", "2")
    assert (params["training_examples"], len(params["training_sha256"])) == ("16", 64)
    told = mlflow.history(run["info"]["run_id"], "train_loss")
    assert told == losses(client, job)
    assert len(told) > 1
    assert "# A LoRA adapter on my-base" in mlflow.artifact(run["info"]["run_id"], "README.md")
    table = mlflow.artifact(run["info"]["run_id"], "step_metrics.csv")
    assert table.startswith("step,train_loss,")


def _is_drawn(client: Any, job: Any, folder: Path) -> None:
    first, second = (client.files.retrieve(file_id) for file_id in job.result_files)
    assert first.filename == "step_metrics.csv"
    accumulator = EventAccumulator(str(folder / second.filename))
    accumulator.Reload()
    drawn = [(each.step, each.value) for each in accumulator.Scalars("train_loss")]
    assert drawn == [(step, pytest.approx(loss)) for step, loss in losses(client, job)]


def _is_stored_nowhere(server: Windlass, folder: Path) -> None:
    """The password is in no file of the server: database, objects, logs, working folders."""
    for root in (server.data, folder):
        assert files_with(root, PASSWORD.encode()) == []
