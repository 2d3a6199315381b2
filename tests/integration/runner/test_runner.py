"""A real runner, with real TRL and a real (tiny) model, seen by its agent."""

import csv
import hashlib
import importlib.metadata
import json
import math

import pytest
from safetensors import safe_open
from tests.integration.runner.cases import Case
from tests.support.agents.runner_agent import TOKEN, RunnerAgent
from tests.support.environments.sandbox import needed_sandbox

from windlass.api.runner.v1 import runner_pb2 as pb
from windlass.confinement import confinement
from windlass_agent.runner.reporting.metrics import SCHEMA

pytestmark = pytest.mark.torch


async def test_a_supervised_job_trains_an_adapter_and_hands_it_over(case: Case) -> None:
    case.assign(epochs=3, validation=True)
    runner = await case.start()
    assert await runner.wait() == 0

    agent = case.agent
    assert agent.finish is not None
    assert agent.finish.outcome == pb.OUTCOME_SUCCEEDED
    assert sorted(agent.events) == list(range(1, agent.finish.last_seq + 1))
    phases = [e.phase for _, e in sorted(agent.events.items()) if e.phase]
    assert phases == ["preparing", "starting", "training", "uploading"]

    losses = agent.values("train_loss")
    assert len(losses) == 9
    assert losses[-1] < losses[0] / 2
    assert len(agent.values("valid_loss")) == 3
    last = [m for m in agent.metrics() if "valid_loss" in m.values][-1]
    assert last.values["full_valid_loss"] == last.values["valid_loss"]
    assert 0 <= last.values["valid_mean_token_accuracy"] <= 1
    measured = agent.metrics()[0]
    assert (measured.step, measured.total_steps) == (1, 9)
    assert measured.values["tokens_per_second"] > 0
    # A whole interpreter with torch, and no accelerator whose peak could be known.
    assert 50e6 < measured.values["peak_memory_bytes"] < 64e9
    assert "mfu" not in measured.values
    assert set().union(*(m.values for m in agent.metrics())) <= SCHEMA
    tokens = [m.trained_tokens for m in agent.metrics()]
    assert tokens == sorted(tokens)
    assert agent.finish.trained_tokens == tokens[-1] > 0

    checkpoints = agent.of_kind(pb.ARTIFACT_KIND_CHECKPOINT)
    assert [each.step for each in checkpoints] == [3, 6, 9]
    assert all(each.is_whole and each.is_adapter for each in checkpoints)
    assert {"train_loss", "valid_loss", "full_valid_loss"} <= checkpoints[0].metrics.keys()
    assert "learning_rate" not in checkpoints[0].metrics
    # What another attempt would go on from has nothing before it that is yet to be told.
    states = agent.of_kind(pb.ARTIFACT_KIND_TRAINING_STATE)
    assert states
    assert all(each.told >= each.step for each in states)
    _is_servable(case)
    _says_what_it_is(case, losses)
    _tells_each_step(case, losses)
    assert json.loads((case.workdir / "exit.json").read_text()) == {
        "outcome": "succeeded",
        "error_code": "",
        "error_message": "",
        "error_param": "",
        "trained_tokens": tokens[-1],
        "last_seq": agent.finish.last_seq,
        "reported": True,
    }
    assert (case.workdir / "log").stat().st_size > 0
    assert not (case.workdir / "output").exists()


def _is_servable(case: Case) -> None:
    (final,) = case.agent.of_kind(pb.ARTIFACT_KIND_FINAL)
    assert final.is_whole
    assert final.is_adapter
    assert final.names == {
        "README.md",
        "adapter_config.json",
        "adapter_model.safetensors",
        "chat_template.jinja",
        "tokenizer.json",
        "tokenizer_config.json",
    }
    config = json.loads((final.folder / "adapter_config.json").read_text())
    assert config["base_model_name_or_path"] == "tiny-base"
    for name in final.names - {"adapter_model.safetensors"}:
        assert str(case.workdir) not in (final.folder / name).read_text()
    with safe_open(final.folder / "adapter_model.safetensors", "pt") as weights:
        assert all(weights.get_tensor(name).isfinite().all() for name in weights.keys())  # noqa: SIM118


def _says_what_it_is(case: Case, losses: list[float]) -> None:
    (final,) = case.agent.of_kind(pb.ARTIFACT_KIND_FINAL)
    card = (final.folder / "README.md").read_text()
    assert card.startswith('---\nbase_model: "tiny-base"\nlibrary_name: "peft"\n')
    data = (case.agent.store / "train.jsonl").read_bytes()
    assert f"| training | 24 | `{hashlib.sha256(data).hexdigest()}` |" in card
    assert "| validation | 8 |" in card
    assert f"| `train_loss` | {losses[-1]:.6g} |" in card
    assert f"| trl | {importlib.metadata.version('trl')} |" in card
    config = json.loads(card.split("~~~json\n")[1].split("\n~~~")[0])
    assert config["epochs"] == 3
    # Neither where it was made, nor what gave access to it.
    for secret in (str(case.workdir), str(case.agent.store), TOKEN, "http://", "https://"):
        assert secret not in card
    (first, *_) = case.agent.of_kind(pb.ARTIFACT_KIND_CHECKPOINT)
    assert "step 3." in (first.folder / "README.md").read_text()


def _tells_each_step(case: Case, losses: list[float]) -> None:
    (result,) = case.agent.of_kind(pb.ARTIFACT_KIND_RESULT_FILE)
    with (result.folder / "step_metrics.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["step"] for row in rows] == [str(step) for step in range(1, 10)]
    assert [float(row["train_loss"]) for row in rows] == losses
    assert rows[0]["valid_loss"] == ""
    assert math.isfinite(float(rows[2]["valid_loss"]))
    assert list(rows[0]) == [
        *("step", "train_loss", "train_accuracy", "valid_loss", "valid_mean_token_accuracy")
    ]


async def test_full_fine_tuning_hands_over_complete_weights(case: Case) -> None:
    case.assign(lora=False, max_steps=2)
    runner = await case.start()
    assert await runner.wait() == 0

    (final,) = case.agent.of_kind(pb.ARTIFACT_KIND_FINAL)
    assert not final.is_adapter
    assert {"model.safetensors", "config.json", "generation_config.json"} <= final.names
    assert not any(name.endswith((".bin", ".pt", ".pth")) for name in final.names)
    assert str(case.workdir) not in (final.folder / "config.json").read_text()


async def test_preferences_are_learned(case: Case) -> None:
    case.assign(method="dpo", max_steps=3, rows=case.preferences(8))
    runner = await case.start()
    assert await runner.wait() == 0, case.log()

    assert len(case.agent.values("train_loss")) == 3
    assert case.agent.values("train_reward_accuracy")
    assert case.agent.of_kind(pb.ARTIFACT_KIND_FINAL)[0].is_whole


async def test_a_stopped_job_saves_its_state_and_another_attempt_goes_on(case: Case) -> None:
    # More than it takes before it hears that it should stop.
    case.assign(max_steps=400)
    runner = await case.start()
    await case.until(lambda: len(case.agent.values("train_loss")) >= 3)
    runner.terminate()
    assert await runner.wait() == 143

    agent = case.agent
    assert agent.finish is not None
    assert agent.finish.outcome == pb.OUTCOME_STOPPED
    state = max(agent.of_kind(pb.ARTIFACT_KIND_TRAINING_STATE), key=lambda each: each.step)
    assert state.step == agent.metrics()[-1].step
    assert 3 <= state.step < 400
    assert {"optimizer.pt", "scheduler.pt", "rng_state.pth", "trainer_state.json"} <= state.names
    assert not agent.of_kind(pb.ARTIFACT_KIND_FINAL)
    tokens = agent.finish.trained_tokens

    case.resume_from(state.step, max_steps=state.step + 3)
    runner = await case.start()
    assert await runner.wait() == 0, case.log()
    steps = [m.step for m in agent.metrics() if "train_loss" in m.values]
    assert steps == [state.step + 1, state.step + 2, state.step + 3]
    assert agent.finish.outcome == pb.OUTCOME_SUCCEEDED
    assert agent.finish.trained_tokens > tokens
    (result,) = agent.of_kind(pb.ARTIFACT_KIND_RESULT_FILE)
    with (result.folder / "step_metrics.csv").open() as file:
        assert [int(row["step"]) for row in csv.DictReader(file)] == list(range(1, state.step + 4))


async def test_a_job_killed_within_an_epoch_goes_on_from_the_last_saved_step(case: Case) -> None:
    case.assign(epochs=12, save_steps=2)
    runner = await case.start()
    assert await runner.wait() == 0, case.log()
    agent = case.agent
    straight = agent.values("train_loss")
    assert len(straight) == 36
    # Only the ends of epochs are models of the project.
    checkpoints = [each.step for each in agent.of_kind(pb.ARTIFACT_KIND_CHECKPOINT)]
    assert checkpoints == list(range(3, 37, 3))

    agent.artifacts.clear()
    agent.begin_attempt()
    runner = await case.start()
    await case.until(lambda: _within(agent))
    runner.kill()
    await runner.wait()
    step = _within(agent)[-1]
    case.resume_from(step)
    runner = await case.start()
    assert await runner.wait() == 0, case.log()
    assert [m.step for m in agent.metrics() if "train_loss" in m.values] == [*range(step + 1, 37)]
    assert agent.values("train_loss") == straight[step:]


async def test_a_state_is_saved_after_some_time_too(case: Case) -> None:
    # Longer than no step takes.
    case.assign(save_minutes=1e-6, max_steps=3, rows=case.chats(40))
    runner = await case.start()
    assert await runner.wait() == 0, case.log()
    said = [event.message for _, event in sorted(case.agent.events.items())]
    assert any(text.startswith("Training state saved at step ") for text in said)
    assert not case.agent.of_kind(pb.ARTIFACT_KIND_CHECKPOINT)[:-1]


def _within(agent: RunnerAgent) -> list[int]:
    """Steps within an epoch whose state is uploaded, with all that another attempt needs."""
    states = agent.of_kind(pb.ARTIFACT_KIND_TRAINING_STATE)
    found = [each for each in states if each.is_whole and each.step % 3]
    needed = {"adapter_model.safetensors", "adapter_config.json", "optimizer.pt", "rng_state.pth"}
    assert all(needed <= each.names for each in found)
    return [each.step for each in found]


async def test_a_job_is_trained_within_walls(case: Case) -> None:
    """The runner behind its walls, the trainer and the exporter behind theirs."""
    needed_sandbox()
    case.assign(epochs=1)
    case.agent.assignment.exports.append(pb.EXPORT_MERGED)
    runner = await case.start(walls=confinement("required"))
    await case.until(lambda: case.agent.finish)
    await runner.wait()
    assert case.agent.finish is not None
    assert case.agent.finish.outcome == pb.OUTCOME_SUCCEEDED, case.log()
    assert case.agent.of_kind(pb.ARTIFACT_KIND_MERGED)
    phases = [e.phase for _, e in sorted(case.agent.events.items()) if e.phase]
    assert phases[-2:] == ["exporting", "uploading"]
