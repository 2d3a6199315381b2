"""Trackers that misbehave: a job hears of it once, and never waits long."""

import json
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tests.support.fakes.trackers import Answers, Silent, Site, WandbFake
from tests.support.waiting import until, within

from windlass.api.runner.v1 import runner_pb2 as pb
from windlass_agent.runner.protocol.outcome import OutcomeKind
from windlass_agent.runner.reporting.metrics import History
from windlass_agent.runner.reporting.model_card import Data, ModelCard
from windlass_agent.runner.reporting.reporter import Reporter
from windlass_agent.runner.reporting.spool import EventSpool
from windlass_agent.runner.tracking import feed, tensorboard
from windlass_agent.runner.tracking.tracking import AttemptTracking

SECRET = "s3cr3t/of+a=tracker"
CARD = ModelCard(
    job_id="ftjob-1",
    attempt=1,
    base_model="tiny",
    backend="trl",
    config={"epochs": 2, "peft": {"r": 8}, "hub_token": "t0ken", "note": None},
    data=[Data("training", 24, "ab")],
)


class Stage:
    """A reporter of real parts, and trackers that a test names."""

    def __init__(self, folder: Path) -> None:
        self.spool = EventSpool(folder / "spool.jsonl")
        # The spool is what would be sent.
        self.reporter = Reporter(None, self.spool)  # type: ignore[arg-type]  # nothing is sent
        self.tracking = AttemptTracking(self.reporter)
        self.sites: list[Site] = []

    async def site(self, site: Site) -> str:
        self.sites.append(site)
        return await site.start()

    def begin(self, *trackers: pb.Tracker) -> None:
        assignment = pb.Assignment(
            job_id="ftjob-1", base_model="tiny", model_name="ft:tiny:acme::x", trackers=trackers
        )
        self.tracking.begin(assignment, CARD)

    def step(self, step: int, **values: float) -> None:
        self.reporter.metrics(pb.StepMetrics(step=step, total_steps=9), values)

    @property
    def said(self) -> list[str]:
        return [event.message for event in self.spool.batch(1000)]

    @property
    def warnings(self) -> list[str]:
        return [e.message for e in self.spool.batch(1000) if e.level == pb.LEVEL_WARN]


@pytest.fixture
async def stage(tmp_path: Path) -> AsyncIterator[Stage]:
    made = Stage(tmp_path)
    yield made
    await made.tracking.leave()
    for site in made.sites:
        await site.stop()


def mlflow(url: str, secret: str = SECRET, **config: Any) -> pb.Tracker:
    document = json.dumps({"tracking_uri": url, "experiment": "ships", **config}).encode()
    return pb.Tracker(type="mlflow", config=document, url=url, secret=secret.encode())


def wandb(url: str, secret: str = SECRET, **config: Any) -> pb.Tracker:
    document = json.dumps({"project": "ships", **config}).encode()
    return pb.Tracker(type="wandb", config=document, url=url, secret=secret.encode())


@pytest.mark.parametrize("kind", [mlflow, wandb])
@pytest.mark.parametrize(
    ("status", "body", "expected"),
    [
        (401, "{authorization}", "it answered 401"),
        (400, '{"error_code": "{authorization}", "message": "{authorization}"}', "answered 400"),
        (403, '{"error_code": "PERMISSION_DENIED"}', "it answered 403"),
        (200, "<html>{authorization}</html>", "not JSON"),
        (200, '{"experiment": 7, "errors": ["{authorization}"]}', ""),
        (200, "[" * 100_000, "not JSON"),
        (200, " " * (5 << 20), "too large"),
    ],
)
async def test_an_answer_that_makes_no_sense_ends_the_reporting(
    stage: Stage, kind: Callable[..., pb.Tracker], status: int, body: str, expected: str
) -> None:
    site = Answers(status, body)
    stage.begin(kind(await stage.site(site)))
    await until(lambda: stage.warnings)
    stage.step(1, train_loss=1.0)
    with within(1):
        await stage.tracking.close(OutcomeKind.SUCCEEDED, [])
    (warning,) = stage.warnings
    assert expected in warning
    assert "receives no more reports of this job" in warning
    assert SECRET not in str(stage.said)
    assert site.requests[0][1].split()[1] not in str(stage.said)


@pytest.mark.parametrize("kind", [mlflow, wandb])
async def test_nobody_is_led_to_another_host(stage: Stage, kind: Callable[..., pb.Tracker]) -> None:
    elsewhere = Answers(200, "{}")
    there = await stage.site(elsewhere)
    for status in (301, 302, 307, 308):
        site = Answers(status, "", {"Location": f"{there}/stolen"})
        stage.begin(kind(await stage.site(site)))
        await until(lambda: any(str(status) in warning for warning in stage.warnings))  # noqa: B023
        assert len(site.requests) == 1
        await stage.tracking.leave()
    assert elsewhere.requests == []


async def test_a_silent_tracker_does_not_hold_a_job_up(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("windlass_agent.runner.tracking.tracking._CLOSE_SECONDS", 0.5)
    silent = Silent()
    stage.begin(mlflow(await stage.site(silent)))
    await silent.asked.wait()
    for step in range(500):
        stage.step(step, train_loss=1.0)
    with within(2):
        await stage.tracking.close(OutcomeKind.SUCCEEDED, [])
    assert stage.warnings == ["MLflow did not take everything before the job ended."]


async def test_one_that_comes_back_gets_what_waited(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feed, "_LONGEST_PAUSE_SECONDS", 0.01)
    site = Answers(503, "{authorization}")
    fake = WandbFake(SECRET)
    url = await stage.site(site)
    port = int(url.rpartition(":")[2])
    stage.begin(wandb(url, entity="acme"))
    stage.step(1, train_loss=1.5)
    await until(lambda: stage.warnings)
    assert stage.warnings == ["Weights & Biases is not responding; retrying: it answered 503."]
    await site.stop()
    await fake.start(port)
    stage.sites = [fake]
    stage.step(2, train_loss=1.25)
    stage.step(2, valid_loss=1.75)
    await stage.tracking.close(OutcomeKind.SUCCEEDED, [])
    run = fake.runs["ftjob-1"]
    assert [(row["_step"], row["train_loss"]) for row in run.history] == [(1, 1.5), (2, 1.25)]
    assert run.history[1]["valid_loss"] == 1.75
    assert run.summary["fine_tuned_model"] == "ft:tiny:acme::x"
    assert run.end == {"complete": True, "exitcode": 0}
    assert len(stage.warnings) == 1
    assert f"{url}/acme/ships/runs/ftjob-1" in str(stage.said)


async def test_a_later_attempt_goes_on_with_the_run(stage: Stage, tmp_path: Path) -> None:
    fake = WandbFake(SECRET)
    url = await stage.site(fake)
    stage.begin(wandb(url, name="Titanic", tags=["sea"]))
    stage.step(1, train_loss=1.5)
    await stage.tracking.close(OutcomeKind.STOPPED, [])
    run = fake.runs["ftjob-1"]
    assert run.end == {"complete": True, "exitcode": 1, "preempting": True}
    (tmp_path / "later").mkdir()
    later = Stage(tmp_path / "later")
    later.begin(wandb(url, name="Titanic", tags=["sea"]))
    later.step(2, train_loss=1.0)
    await later.tracking.close(OutcomeKind.SUCCEEDED, [])
    await later.tracking.leave()
    assert [row["_step"] for row in run.history] == [1, 2]
    assert run.variables["displayName"] == "Titanic"
    assert run.variables["tags"] == ["sea", "windlass/finetune", "windlass/tiny",
                                     "windlass/ftjob-1"]  # fmt: skip
    config = {name: each["value"] for name, each in json.loads(run.variables["config"]).items()}
    assert config == {
        "base_model": "tiny", "backend": "trl", "training_examples": "24",
        "training_sha256": "ab", "epochs": "2", "peft.r": "8", "hub_token": "(left out)",
    }  # fmt: skip


async def test_what_cannot_be_used_is_said(stage: Stage) -> None:
    stage.begin(
        pb.Tracker(type="wandb", problem="The project's secret 'wandb' is gone."),
        pb.Tracker(type="comet", config=b"{}"),
        mlflow("http://127.0.0.1:9", secret="two\nlines"),
    )
    assert stage.warnings == [
        "A tracker receives no reports of this job: The project's secret 'wandb' is gone.",
        "A tracker receives no reports of this job: this runner does not support 'comet'",
        "A tracker receives no reports of this job: the secret 'mlflow' holds characters that HTTP "
        "cannot carry",
    ]


async def test_a_message_never_holds_a_secret(stage: Stage) -> None:
    stage.begin(mlflow("http://127.0.0.1:9"))
    stage.reporter.warn(f"It said {SECRET}!")
    assert stage.said == ["It said (hidden)!"]


def test_tensorboard_reads_what_was_measured(tmp_path: Path) -> None:
    history = History()
    history.add(1, {"train_loss": 1.5, "learning_rate": 0.25})
    history.add(3, {"train_loss": 1.25})
    file = tensorboard.write(tmp_path, history)
    assert file.name.startswith("events.out.tfevents.")
    assert file.name.endswith(".windlass")
    found = EventAccumulator(str(file))
    found.Reload()
    assert sorted(found.Tags()["scalars"]) == ["learning_rate", "train_loss"]
    scalars = found.Scalars("train_loss")
    assert [(each.step, each.value) for each in scalars] == [(1, 1.5), (3, 1.25)]
    assert all(abs(each.wall_time - time.time()) < 60 for each in scalars)
