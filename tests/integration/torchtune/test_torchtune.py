"""A real runner that trains with real TorchTune in an environment of its own, seen by its agent."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from peft import PeftModel
from safetensors.torch import load_file, save_file
from tests.integration.runner.cases import Case
from tests.integration.torchtune.cases import assign, final, finish, held_out_loss
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    LlamaConfig,
    PreTrainedConfig,
    Qwen2Config,
)

from windlass.api.runner.v1 import runner_pb2 as pb
from windlass_agent.runner.reporting.metrics import SCHEMA

pytestmark = pytest.mark.torch
ADAPTER = {
    "README.md",
    "adapter_config.json",
    "adapter_model.safetensors",
    "chat_template.jinja",
    "tokenizer.json",
    "tokenizer_config.json",
}


async def test_an_adapter_is_trained_and_is_what_peft_reads(case: Case, python: Path) -> None:
    assign(case, epochs=3, validation=True)
    await finish(case, python)

    agent = case.agent
    assert agent.finish is not None
    phases = [e.phase for _, e in sorted(agent.events.items()) if e.phase]
    assert phases == ["preparing", "starting", "training", "uploading"]
    losses = agent.values("train_loss")
    assert len(losses) == 9
    assert losses[-1] < losses[0] / 2
    assert len(agent.values("valid_loss")) == 3
    assert {"learning_rate", "grad_norm", "tokens_per_second", "peak_memory_bytes"} <= set(
        agent.metrics()[0].values
    )
    assert set().union(*(m.values for m in agent.metrics())) <= SCHEMA
    measured = agent.metrics()[0]
    assert (measured.step, measured.total_steps) == (1, 9)
    tokens = [m.trained_tokens for m in agent.metrics()]
    assert tokens == sorted(tokens)
    assert agent.finish.trained_tokens == tokens[-1] > 0

    checkpoints = agent.of_kind(pb.ARTIFACT_KIND_CHECKPOINT)
    assert [each.step for each in checkpoints] == [3, 6, 9]
    assert all(each.is_whole and each.is_adapter for each in checkpoints)
    assert checkpoints[0].names == ADAPTER
    adapter = final(case)
    assert adapter.names == ADAPTER
    config = json.loads((adapter.folder / "adapter_config.json").read_text())
    assert config["base_model_name_or_path"] == "tiny-base"
    assert (config["task_type"], config["r"], config["lora_alpha"]) == ("CAUSAL_LM", 16, 32)
    base = AutoModelForCausalLM.from_pretrained(case.model)
    # TorchTune and PEFT mean the same by it.
    loaded = PeftModel.from_pretrained(base, adapter.folder)
    assert held_out_loss(case, loaded) == pytest.approx(agent.values("valid_loss")[-1], rel=1e-3)


async def test_every_weight_is_trained_and_is_what_transformers_reads(
    case: Case, python: Path
) -> None:
    assign(case, epochs=2, validation=True, lora=False)
    await finish(case, python)
    losses = case.agent.values("train_loss")
    assert losses[-1] < losses[0]
    trained = final(case)
    assert not trained.is_adapter
    assert {"config.json", "tokenizer.json", "README.md"} <= trained.names
    assert not any(name.startswith("adapter") for name in trained.names)
    model = AutoModelForCausalLM.from_pretrained(trained.folder)
    said = case.agent.values("valid_loss")[-1]
    assert held_out_loss(case, model) == pytest.approx(said, rel=1e-3)


def replace_model(case: Case, config: PreTrainedConfig) -> None:
    """Puts a model of random weights in the place of the base; its tokenizer stays."""
    tokenizer = AutoTokenizer.from_pretrained(case.model)
    config.update({"vocab_size": len(tokenizer), "max_position_embeddings": 256})
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(config)
    shutil.rmtree(case.model)
    model.save_pretrained(case.model)
    tokenizer.save_pretrained(case.model)


async def held_out_losses(case: Case, python: Path) -> tuple[float, float]:
    """The trained adapter's losses by TorchTune and by PEFT."""
    await finish(case, python)
    base = AutoModelForCausalLM.from_pretrained(case.model)
    loaded = PeftModel.from_pretrained(base, final(case).folder)
    first, *_, last = case.agent.values("valid_loss")
    assert last < first
    return last, held_out_loss(case, loaded)


@pytest.mark.parametrize("dora", [True, pytest.param(False, marks=pytest.mark.long)])
async def test_a_qwen_adapter_is_what_peft_reads(case: Case, python: Path, dora: bool) -> None:
    replace_model(
        case,
        Qwen2Config(
            hidden_size=64,
            intermediate_size=128,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            tie_word_embeddings=True,
        ),
    )
    assign(case, epochs=3, validation=True, use_dora=dora)
    said, found = await held_out_losses(case, python)
    assert found == pytest.approx(said, rel=1e-3)


async def test_a_dora_adapter_is_what_peft_reads(case: Case, python: Path) -> None:
    assign(case, epochs=3, validation=True, use_dora=True)
    said, found = await held_out_losses(case, python)
    assert found == pytest.approx(said, rel=1e-3)
    assert json.loads((final(case).folder / "adapter_config.json").read_text())["use_dora"]


@pytest.mark.parametrize("dora", [pytest.param(True, marks=pytest.mark.long), False])
async def test_an_adapter_is_trained_on_four_bits(case: Case, python: Path, dora: bool) -> None:
    # Of their blocks each matrix has whole ones.
    replace_model(
        case,
        LlamaConfig(
            hidden_size=128,
            intermediate_size=256,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=4,
        ),
    )
    assign(case, epochs=3, validation=True, load_in_4bit=True, use_dora=dora)
    said, found = await held_out_losses(case, python)
    # PEFT adds it to the weights as they were.
    assert found == pytest.approx(said, rel=0.02)
    assert found != pytest.approx(said, rel=1e-6)


async def test_preferences_widen_the_margin(case: Case, python: Path) -> None:
    assign(case, method="dpo", rows=case.preferences(24), held_out=case.preferences(8), epochs=3)
    await finish(case, python)
    held_out = case.agent.values("valid_loss")
    assert len(held_out) == 3
    assert held_out[-1] < held_out[0]
    assert case.agent.values("valid_reward_margin")[-1] > 0.1
    assert case.agent.values("valid_reward_accuracy")[-1] == 1
    margins = case.agent.values("train_reward_margin")
    assert len(margins) == 9
    assert abs(margins[0]) < 0.01
    assert margins[-1] > 0.1
    assert case.agent.values("train_reward_accuracy")[-1] == 1
    assert final(case).is_adapter


# TorchTune leaves out what fills no batch, the last in the order that it draws for each epoch.
LEFT_OUT_FIRST = 6


async def test_a_loss_that_is_no_number_ends_the_job_and_keeps_the_checkpoint_before(
    case: Case, python: Path
) -> None:
    rows = case.chats(9)
    rows[LEFT_OUT_FIRST] = {"messages": [{"role": "user", "content": "§"}, rows[0]["messages"][1]]}
    spoil(case.model, "§")
    assign(case, rows=rows, epochs=3)
    runner = await case.start("--torchtune-python", str(python))
    assert await runner.wait() == 1
    code, message, param = case.errors()
    assert (code, param) == ("loss_not_finite", "hyperparameters")
    assert message.startswith("The loss is no longer a number at step 2.")
    assert [metrics.step for metrics in case.agent.metrics()] == [1]
    (kept,) = case.agent.of_kind(pb.ARTIFACT_KIND_CHECKPOINT)
    assert (kept.step, kept.is_whole) == (1, True)
    weights = load_file(kept.folder / "adapter_model.safetensors")
    assert all(tensor.isfinite().all() for tensor in weights.values())
    assert not case.agent.of_kind(pb.ARTIFACT_KIND_FINAL)


def spoil(folder: Path, text: str) -> None:
    """Makes the base know no number for a text: its embedding alone, untied from its outputs."""
    weights = load_file(folder / "model.safetensors")
    embedding = weights["model.embed_tokens.weight"]
    weights["lm_head.weight"] = embedding.clone()
    tokens = AutoTokenizer.from_pretrained(folder).encode(text, add_special_tokens=False)
    embedding[tokens] = float("nan")
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "tie_word_embeddings": False}))


async def test_what_cannot_be_trained_is_said(case: Case, python: Path) -> None:
    assign(case, rows=case.preferences(4))
    await (await case.start("--torchtune-python", str(python))).wait()
    code, message, param = case.errors()
    assert (code, param) == ("invalid_training_file", "training_file")
    assert "needs chat examples" in message


async def test_a_model_that_torchtune_cannot_build_is_said(case: Case, python: Path) -> None:
    config = json.loads((case.model / "config.json").read_text())
    (case.model / "config.json").write_text(json.dumps({**config, "model_type": "gpt_neox"}))
    assign(case)
    await (await case.start("--torchtune-python", str(python))).wait()
    code, message, param = case.errors()
    assert (code, param) == ("model_not_supported", "model")
    assert "of type gpt_neox" in message


async def test_a_model_without_a_chat_template_is_said(case: Case, python: Path) -> None:
    (case.model / "chat_template.jinja").unlink()
    assign(case)
    await (await case.start("--torchtune-python", str(python))).wait()
    code, message, param = case.errors()
    assert (code, param) == ("model_has_no_chat_template", "model")
    assert "chat_template.jinja" in message


@pytest.mark.parametrize("method", ["supervised", pytest.param("dpo", marks=pytest.mark.long)])
async def test_a_tokenizer_of_another_model_is_said(case: Case, python: Path, method: str) -> None:
    config = json.loads((case.model / "config.json").read_text())
    (case.model / "config.json").write_text(json.dumps({**config, "vocab_size": 20}))
    rows = case.preferences(4) if method == "dpo" else None
    assign(case, method=method, rows=rows)
    await (await case.start("--torchtune-python", str(python))).wait()
    code, message, param = case.errors()
    assert (code, param) == ("tokenizer_does_not_fit", "model")
    assert "the model has only 20 tokens" in message


async def test_what_ran_out_of_memory_says_what_it_took(case: Case, tmp_path: Path) -> None:
    # No machine of the tests has a GPU to fill.
    program = tmp_path / "python"
    words = (
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a "
        "total capacity of 79.15 GiB of which 1.25 GiB is free."
    )
    program.write_text(f"#!/bin/sh\necho '{words}'; exit 1\n")
    program.chmod(0o755)
    assign(case, max_length=128)
    await (await case.start("--torchtune-python", str(program))).wait()
    code, message, param = case.errors()
    assert (code, param) == ("out_of_memory", "hyperparameters"), message
    assert "GPU 0 has a total capacity of 79.15 GiB of which 1.25 GiB is free." in message
    assert "8 examples of up to 128 tokens at once: lower hyperparameters.batch_size" in message


async def test_an_adapter_of_torchtune_is_compared_with_its_base(case: Case, python: Path) -> None:
    assign(case, epochs=3)
    grader = {
        "type": "string_check",
        "name": "exact",
        "operation": "eq",
        "input": "{{sample.output_text}}",
        "reference": "{{item.reference_answer}}",
    }
    case.evaluate(case.chats(4), grader)
    await finish(case, python)
    (told,) = [event for event in case.agent.events.values() if event.HasField("evaluation")]
    assert told.evaluation.examples == 4
    assert told.evaluation.losses == 0
