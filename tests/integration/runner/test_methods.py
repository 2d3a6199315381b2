"""Each method beyond OpenAI's, with a real runner and a real (tiny) model, until it has learned."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import PeftModel
from safetensors.torch import load_file, save_file
from tests.integration.runner.cases import Case
from tests.support.agents.runner_agent import Artifact
from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification, AutoTokenizer

from windlass.api.runner.v1 import runner_pb2 as pb
from windlass.backends.trl.config import ENTRY_MODULE
from windlass_agent.runner.protocol import trainer_events

pytestmark = pytest.mark.torch


async def trained(case: Case) -> Artifact:
    """Runs the assignment to its end, and returns the model that it made."""
    runner = await case.start()
    assert await runner.wait() == 0, case.log()
    agent = case.agent
    assert agent.finish is not None
    assert agent.finish.outcome == pb.OUTCOME_SUCCEEDED
    assert agent.finish.trained_tokens > 0
    (final,) = agent.of_kind(pb.ARTIFACT_KIND_FINAL)
    assert final.is_whole
    return final


def adapter(final: Artifact) -> dict[str, Any]:
    assert final.is_adapter
    config: dict[str, Any] = json.loads((final.folder / "adapter_config.json").read_text())
    return config


@pytest.mark.long
async def test_labelled_answers_are_learned_by_kto(case: Case) -> None:
    rows = case.labelled(20)
    case.assign(method="kto", rows=rows[:32], held_out=rows[32:], epochs=4, rate=20, beta=0.2)
    final = await trained(case)
    valid = case.agent.values("valid_reward_margin")
    assert valid[-1] > valid[0]
    margins = case.agent.values("train_reward_margin")
    assert margins[-1] > max(0.1, margins[0])
    assert case.agent.values("train_loss")[-1] < case.agent.values("train_loss")[0]
    # It is an adapter of a model that writes, and writes.
    assert adapter(final)["task_type"] == "CAUSAL_LM"
    base = AutoModelForCausalLM.from_pretrained(case.model)
    tuned = PeftModel.from_pretrained(base, final.folder)
    ids = AutoTokenizer.from_pretrained(final.folder)("red lamp", return_tensors="pt")
    assert tuned(**ids).logits.isfinite().all()


async def test_pairs_are_answers_with_labels_to_kto(case: Case) -> None:
    case.assign(method="kto", rows=case.preferences(8), max_steps=2, lora=False)
    final = await trained(case)
    assert not final.is_adapter
    messages = [event.message for event in case.agent.events.values()]
    assert "8 training examples are ready." in messages


@pytest.mark.long
async def test_pairs_are_learned_by_orpo_and_it_goes_on_from_a_checkpoint(case: Case) -> None:
    pairs = case.preferences(20)
    case.assign(method="orpo", rows=pairs[:16], held_out=pairs[16:], epochs=4, rate=5)
    assert adapter(await trained(case))["task_type"] == "CAUSAL_LM"
    for name in ("train_loss", "valid_loss"):
        losses = case.agent.values(name)
        assert losses[-1] < losses[0], name
    margins = case.agent.values("train_reward_margin")
    assert margins[-1] > margins[0]

    assert case.agent.finish is not None
    tokens = case.agent.finish.trained_tokens
    # Two steps make an epoch.
    case.resume_from(8, max_steps=10)
    runner = await case.start()
    assert await runner.wait() == 0, case.log()
    steps = [m.step for m in case.agent.metrics() if "train_loss" in m.values]
    assert steps == [9, 10]
    assert case.agent.finish.trained_tokens > tokens


async def test_pairs_make_a_model_that_tells_good_answers_from_bad(case: Case) -> None:
    pairs = case.preferences(32)
    case.assign(method="reward", rows=pairs[:24], held_out=pairs[24:], epochs=4, rate=10)
    final = await trained(case)
    assert case.agent.values("valid_reward_accuracy")[-1] == 1.0
    assert case.agent.values("train_reward_accuracy")[-1] == 1.0
    assert adapter(final)["task_type"] == "SEQ_CLS"
    base = AutoModelForSequenceClassification.from_pretrained(case.model, num_labels=1)
    scorer = PeftModel.from_pretrained(base, final.folder).eval()
    tokenizer = AutoTokenizer.from_pretrained(final.folder)
    right = sum(
        score(scorer, tokenizer, pair, "preferred_output")
        > score(scorer, tokenizer, pair, "non_preferred_output")
        for pair in pairs[24:]
    )
    assert right == 8


def score(scorer: Any, tokenizer: Any, pair: Any, answer: str) -> float:
    messages = [*pair["input"]["messages"], *pair[answer]]
    ids = tokenizer.apply_chat_template(messages, return_tensors="pt", return_dict=True)
    with torch.no_grad():
        return float(scorer(**ids).logits[0, 0])


async def test_a_student_comes_closer_to_its_teacher(case: Case, tiny_model: Path) -> None:
    case.assign(
        method="distillation",
        rows=case.chats(16),
        epochs=4,
        teacher="tiny-base",
        max_completion_length=8,
        lora=False,
        held_out=case.chats(20)[16:],
    )
    case.teach(tiny_model)
    perturb(case)
    assert not (await trained(case)).is_adapter
    losses = case.agent.values("train_loss")
    assert losses[-1] < 0.9 * losses[0]
    valid = case.agent.values("valid_loss")
    # Measured after each epoch, the first of which may be the best; before it was about losses[0].
    assert min(valid) < 0.5 * losses[0], (losses, valid)


def perturb(case: Case) -> None:
    """Makes a student of the base: the same model with noise in its weights."""
    path = case.model / "model.safetensors"
    noise = torch.Generator().manual_seed(0)
    weights = {
        name: weight + 0.05 * torch.randn(weight.shape, generator=noise).to(weight.dtype)
        for name, weight in load_file(path).items()
    }
    save_file(weights, path, {"format": "pt"})
    files = case.agent.assignment.model_files
    (index,) = (i for i, file in enumerate(files) if file.path == path.name)
    files[index].CopyFrom(case.agent.add_file(path, path.name))


async def test_a_teacher_of_other_tokens_is_refused(
    case: Case, tiny_model: Path, tmp_path: Path
) -> None:
    case.assign(method="distillation", rows=case.chats(8), teacher="other")
    other = tmp_path / "other"
    other.mkdir()
    for path in tiny_model.iterdir():
        if path.is_file():
            (other / path.name).write_bytes(path.read_bytes())
    tokenizer = json.loads((other / "tokenizer.json").read_text())
    tokenizer["model"]["vocab"]["!!"] = tokenizer["model"]["vocab"].pop("!")
    (other / "tokenizer.json").write_text(json.dumps(tokenizer))
    case.teach(other)
    runner = await case.start()
    assert await runner.wait() == 1
    code, message, param = case.errors()
    assert (code, param) == ("teacher_does_not_fit", "windlass.config.teacher")
    assert "their tokenizers name tokens differently" in message


async def test_a_seed_gives_the_same_losses_twice(case: Case) -> None:
    curves = []
    for attempts in range(2):
        case.assign(rows=case.chats(24), seed=5, max_steps=4)
        case.agent.assignment.attempt = attempts
        case.agent.begin_attempt()
        runner = await case.start()
        assert await runner.wait() == 0, case.log()
        curves.append(case.agent.values("train_loss"))
    assert len(curves[0]) == 4
    assert curves[0] == curves[1]


async def test_kinds_of_adapters_are_trained(case: Case) -> None:
    case.assign(epochs=3, rank=4, use_dora=True, use_rslora=True)
    final = await trained(case)
    config = adapter(final)
    assert (config["use_dora"], config["use_rslora"], config["r"]) == (True, True, 4)
    losses = case.agent.values("train_loss")
    assert losses[-1] < 0.7 * losses[0]
    names = load_file(final.folder / "adapter_model.safetensors")
    assert any("magnitude" in name for name in names)


async def test_a_quantized_base_is_refused_without_a_gpu(case: Case) -> None:
    case.assign(load_in_4bit=True)
    runner = await case.start()
    assert await runner.wait() == 1
    code, message, param = case.errors()
    assert (code, param) == ("invalid_configuration", "windlass.config.load_in_4bit")
    assert "needs a GPU (QLoRA)" in message


def test_zero_is_refused_where_deepspeed_is_missing(tmp_path: Path) -> None:
    """On a machine with GPUs, whose agent said before that it has it."""
    metrics = tmp_path / "metrics"
    done = subprocess.run(
        [sys.executable, "-m", ENTRY_MODULE, "sft", "--deepspeed", "{}"],
        env={**os.environ, trainer_events.METRICS_VARIABLE: str(metrics)},
        cwd=tmp_path,
        check=False,
    )
    assert done.returncode == 1
    (said,) = map(json.loads, metrics.read_text().splitlines())
    assert (said["code"], said["param"]) == ("deepspeed_not_installed", "windlass.config.sharding")
    assert "has no deepspeed, which zero2 and zero3 need" in said["message"]


async def test_a_line_that_a_method_cannot_use_is_named(case: Case) -> None:
    rows = case.labelled(2)
    rows[2] = {**rows[2], "label": "good"}
    case.assign(method="kto", rows=rows)
    runner = await case.start()
    assert await runner.wait() == 1
    code, message, param = case.errors()
    assert (code, param) == ("invalid_training_file", "training_file")
    assert message.startswith("Line 3: label:")


async def test_pairs_that_are_too_long_are_left_out_and_counted(case: Case) -> None:
    pairs = case.preferences(8)
    pairs[3]["preferred_output"][0]["content"] = "long " * 200
    case.assign(method="reward", rows=pairs, max_steps=1, max_length=64)
    await trained(case)
    warnings = [e.message for e in case.agent.events.values() if e.level == pb.LEVEL_WARN]
    assert warnings == ["1 of 8 training examples exceed 64 tokens and are left out."]
