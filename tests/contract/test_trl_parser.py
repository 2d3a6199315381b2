"""Our arguments against the parser of the TRL that is installed."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from trl.scripts import dpo, sft

from windlass.backends import RenderContext
from windlass.backends.trl import TRLBackend
from windlass.backends.trl_config import Lora, TrainerType, TRLConfig

FLAGS = json.loads((Path(__file__).parent / "trl_1_16_0_flags.json").read_text())
SCRIPTS: dict[TrainerType, ModuleType] = {TrainerType.SFT: sft, TrainerType.DPO: dpo}
ADAPTERS = (
    None,
    Lora(),
    Lora(r=4, alpha=8, dropout=0.0, target_modules=["q_proj"], use_rslora=True),
    Lora(target_modules=["q_proj", "v_proj"], use_dora=True),
)


def configs() -> Iterator[TRLConfig]:
    for peft in ADAPTERS:
        shared: dict[str, Any] = {"learning_rate": 2e-5, "seed": 3, "peft": peft}
        yield TRLConfig(trainer_type=TrainerType.SFT, **shared)
        yield TRLConfig(trainer_type=TrainerType.DPO, beta=0.3, max_steps=9, **shared)
        yield TRLConfig(
            trainer_type=TrainerType.SFT,
            packing=True,
            assistant_only_loss=False,
            gradient_checkpointing=True,
            lr_scheduler="constant_with_warmup",
            **shared,
        )


@pytest.fixture
def context(tmp_path: Path) -> RenderContext:
    return RenderContext(
        model=tmp_path / "model",
        dataset=tmp_path / "data",
        output=tmp_path / "out",
        device="cpu",
        has_validation=True,
        resume_from=tmp_path / "out" / "checkpoint-5",
    )


@pytest.mark.parametrize("device", ["cpu", "cuda"])
@pytest.mark.parametrize("config", list(configs()), ids=lambda config: config.trainer_type.value)
def test_every_flag_is_one_of_this_version(
    config: TRLConfig, device: Any, context: RenderContext
) -> None:
    args = TRLBackend(config).to_args(replace(context, device=device))
    # By full name: the parser itself takes abbreviations.
    known = {*FLAGS["common"], *FLAGS[config.trainer_type]}
    assert {arg[2:] for arg in args if arg.startswith("--")} <= known
    SCRIPTS[config.trainer_type].make_parser().parse_args(args)


@pytest.mark.parametrize("config", list(configs()), ids=lambda config: config.trainer_type.value)
def test_trl_reads_what_we_meant(config: TRLConfig, context: RenderContext) -> None:
    args = TRLBackend(config).to_args(context)
    parser = SCRIPTS[config.trainer_type].make_parser()
    script, training, model, _ = parser.parse_args_and_config(args)
    assert script.dataset_name == str(context.dataset)
    assert model.model_name_or_path == str(context.model)
    assert training.output_dir == str(context.output)
    assert training.resume_from_checkpoint == str(context.resume_from)
    assert (training.use_cpu, training.bf16, model.dtype) == (True, False, "float32")
    assert (training.learning_rate, training.seed) == (2e-5, 3)
    assert (training.num_train_epochs, training.max_steps) == (3, config.max_steps or -1)
    assert (training.max_length, training.warmup_steps) == (2048, 0.03)
    assert training.gradient_checkpointing is (config.gradient_checkpointing is True)
    assert training.lr_scheduler_type == config.lr_scheduler
    assert (training.save_strategy, training.eval_strategy) == ("epoch", "epoch")
    assert training.enable_jit_checkpoint is True
    assert training.report_to == []
    assert training.push_to_hub is training.trust_remote_code is False
    _check_method(config, training)
    _check_adapter(config.peft, model)


def _check_method(config: TRLConfig, training: Any) -> None:
    if config.trainer_type is TrainerType.DPO:
        assert (training.beta, training.loss_type) == (0.3, ["sigmoid"])
    else:
        assert training.assistant_only_loss is (config.assistant_only_loss is not False)
        assert training.packing is (config.packing is True)


def _check_adapter(peft: Lora | None, model: Any) -> None:
    assert model.use_peft is (peft is not None)
    if peft is None:
        return
    assert (model.lora_r, model.lora_alpha) == (peft.r, peft.alpha)
    assert model.lora_dropout == peft.dropout
    assert (model.use_rslora, model.use_dora) == (peft.use_rslora, peft.use_dora)
    if isinstance(peft.target_modules, str):
        assert model.lora_target_modules == peft.target_modules
    else:
        # A list stays one: PEFT reads a text as a pattern of the whole path.
        assert isinstance(model.lora_target_modules, list)
        assert set(model.lora_target_modules) == set(peft.target_modules)
