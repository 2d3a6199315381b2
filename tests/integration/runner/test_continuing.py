"""A real runner that goes on from the adapter of another job."""

from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from tests.integration.runner.cases import Case
from tests.support.agents.runner_agent import Artifact

from windlass.api.runner.v1 import runner_pb2 as pb

pytestmark = pytest.mark.torch
WEIGHTS = "adapter_model.safetensors"
GRADER = {
    "type": "string_check",
    "name": "exact",
    "operation": "eq",
    "input": "{{sample.output_text}}",
    "reference": "{{item.answer}}",
}


async def ended(case: Case) -> Artifact:
    runner = await case.start()
    assert await runner.wait() == 0, case.log()
    assert case.agent.finish is not None
    assert case.agent.finish.outcome == pb.OUTCOME_SUCCEEDED
    return case.agent.of_kind(pb.ARTIFACT_KIND_FINAL)[-1]


def assign_next(case: Case, **asked: Any) -> None:
    """Sets the assignment of another job."""
    attempt = case.agent.assignment.attempt
    case.agent.artifacts.clear()
    case.assign(**asked)
    case.agent.assignment.attempt = attempt
    case.agent.begin_attempt()


async def test_a_job_begins_where_another_ended_and_compares_with_it(case: Case) -> None:
    """SFT, then DPO: its first loss is that of a model that is its own reference."""
    case.assign(epochs=2, rate=2, rank=8)
    case.continue_from((await ended(case)).folder)

    preferring = {"method": "dpo", "rows": case.preferences(8), "epochs": 6, "rate": 5}
    assign_next(case, **preferring, save_steps=1, rank=16)
    straight = await ended(case)
    losses = case.agent.values("train_loss")
    # ln 2: what is trained and what it is compared with say the same.
    assert losses[0] == pytest.approx(0.693147, abs=1e-5)
    assert losses[-1] < losses[0]
    weights = load_file(straight.folder / WEIGHTS)
    assert {each.shape[0] for name, each in weights.items() if "lora_A" in name} == {16}
    # Checkpoints are adapters of the base as well.
    checkpoint = case.agent.of_kind(pb.ARTIFACT_KIND_CHECKPOINT)[-1]
    assert all(torch.equal(each, weights[name]) for name, each in served(checkpoint).items())

    case.agent.artifacts.clear()
    case.agent.begin_attempt()
    runner = await case.start()
    await case.until(lambda: case.agent.of_kind(pb.ARTIFACT_KIND_TRAINING_STATE))
    runner.kill()
    await runner.wait()
    step = case.agent.of_kind(pb.ARTIFACT_KIND_TRAINING_STATE)[-1].step
    assert step < len(losses)
    case.resume_from(step)
    final = await ended(case)
    # What it is compared with is the adapter that the job began with, not the one it goes on from.
    assert case.agent.values("train_loss") == losses[step:]
    assert all(torch.equal(each, weights[name]) for name, each in served(final).items())


def served(artifact: Artifact) -> dict[str, torch.Tensor]:
    """The weights that an engine adds to those of the base."""
    assert artifact.is_adapter
    assert artifact.is_whole
    assert "ref" not in " ".join(artifact.names)
    weights: dict[str, torch.Tensor] = load_file(artifact.folder / WEIGHTS)
    return weights


async def test_a_checkpoint_is_gone_on_from_with_the_loss_that_it_had(case: Case) -> None:
    rows = case.chats(8)
    case.assign(rows=rows, epochs=4, rate=2, dropout=0.0)
    await ended(case)
    losses = case.agent.values("train_loss")
    (third,) = [each for each in case.agent.of_kind(pb.ARTIFACT_KIND_CHECKPOINT) if each.step == 3]
    case.continue_from(third.folder)
    assign_next(case, rows=rows, epochs=1, dropout=0.0)
    await ended(case)
    assert case.agent.values("train_loss") == pytest.approx(losses[3:], abs=1e-5)


@pytest.mark.parametrize(
    "method", ["reward", *(pytest.param(one, marks=pytest.mark.long) for one in ("kto", "rloo"))]
)
async def test_other_methods_go_on_and_compare_with_the_start(case: Case, method: str) -> None:
    case.assign(epochs=1, rate=2, rank=4)
    case.continue_from((await ended(case)).folder)
    rows = {"kto": case.labelled, "rloo": case.prompts, "reward": case.preferences}[method](8)
    asked = {"grader": GRADER, "max_completion_length": 8} if method == "rloo" else {}
    assign_next(case, method=method, rows=rows, max_steps=1, dropout=0.0, **asked)
    served(await ended(case))
    first = case.agent.metrics()[0].values
    if method == "kto":
        assert first["train_loss"] == pytest.approx(0.5, abs=1e-5)
    elif method == "rloo":
        assert first["train_kl"] == pytest.approx(0, abs=1e-6)
