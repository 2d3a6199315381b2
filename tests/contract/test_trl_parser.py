"""Our arguments against the parser of the TRL that is installed."""

import importlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import trl

from windlass.backends import (
    RenderContext,
    TRLConfig,
    TRLDistillationConfig,
    TRLDPOConfig,
    TRLGRPOConfig,
    TRLKTOConfig,
    TRLORPOConfig,
    TRLPeftConfig,
    TRLRewardConfig,
    TRLRLOOConfig,
    TRLSFTConfig,
    TRLTrainerType,
)
from windlass.backends.trl.parsers import parser_flags
from windlass.backends.trl.versions import PINNED, SHARED, VERSIONS

FLAGS = parser_flags(PINNED)
ADAPTERS = (
    TRLPeftConfig(target_modules="all-linear"),
    TRLPeftConfig(r=4, lora_alpha=8, lora_dropout=0.0, target_modules=["q_proj"], use_rslora=True),
    TRLPeftConfig(use_dora=True),
)
REWARDS: dict[str, Any] = {
    "reward_funcs": ["accuracy_reward", "acme.rewards.match"],
    "reward_model_name_or_path": "/models/judge",
    "max_completion_length": 64,
    "temperature": 0.7,
    "num_generations_eval": 2,
}
METHODS: tuple[dict[str, Any], ...] = (
    {"sft_config": TRLSFTConfig(assistant_only_loss=True)},
    {
        "sft_config": TRLSFTConfig(max_seq_length=512, packing=True, dataset_text_field="said"),
        "gradient_checkpointing": True,
        "lr_scheduler_type": "constant_with_warmup",
    },
    {"dpo_config": TRLDPOConfig(beta=0.3, max_length=2048, loss_type="ipo"), "max_steps": 9},
    {"orpo_config": TRLORPOConfig(beta=0.3)},
    {"kto_config": TRLKTOConfig(desirable_weight=2.0, loss_type="apo_zero_unpaired")},
    {
        "grpo_config": TRLGRPOConfig(**REWARDS, num_generations=8, beta=0.01),
        "per_device_train_batch_size": 8,
    },
    {"rloo_config": TRLRLOOConfig(**REWARDS, num_generations=2, beta=0.01)},
    {"reward_config": TRLRewardConfig(center_rewards_coefficient=0.01)},
    {"distillation_config": TRLDistillationConfig("/models/teacher", temperature=0.9, beta=0.5)},
)


def script(kind: TRLTrainerType) -> ModuleType:
    ours = kind is TRLTrainerType.ORPO
    return importlib.import_module(
        "windlass_agent.runner.trainers.trl.orpo" if ours else f"trl.scripts.{kind}"
    )


def configs() -> Iterator[TRLConfig]:
    """Every method without an adapter, and each adapter with one of them or two."""
    for method, peft in [
        *((method, None) for method in METHODS),
        *((METHODS[0], peft) for peft in ADAPTERS),
        *zip(METHODS[-len(ADAPTERS) :], ADAPTERS, strict=True),
    ]:
        (field,) = (name for name in method if name.endswith("_config"))
        yield TRLConfig(
            trainer_type=TRLTrainerType(field.removesuffix("_config")),
            seed=3,
            peft_config=peft,
            **method,
        )


def kind(config: TRLConfig) -> str:
    return str(config.trainer_type)


@pytest.fixture
def context(tmp_path: Path) -> RenderContext:
    return RenderContext(
        model=tmp_path / "model",
        dataset=tmp_path / "data",
        output=tmp_path / "out",
        device="cpu",
        has_validation=True,
        resume_from=tmp_path / "out" / "checkpoint-5",
        companions={"teacher": Path("/models/teacher")},
    )


@pytest.mark.parametrize("version", VERSIONS)
def test_each_release_takes_what_its_row_says(version: str) -> None:
    flags = parser_flags(version)
    assert set(VERSIONS[version]) == set(flags)
    for each, given in VERSIONS[version].items():
        assert given | SHARED <= flags[each]


def test_the_table_is_that_of_the_installed_release() -> None:
    assert trl.__version__ == PINNED
    for each, flags in VERSIONS[PINNED].items():
        parser = script(each).make_parser()
        options = {
            option[2:]
            for action in parser._actions
            for option in action.option_strings
            if option.startswith("--") and not option.startswith("--no_") and "-" not in option[2:]
        }
        # ORPO's settings are older than the others'.
        lacking = {"pad_to_multiple_of"} if each is TRLTrainerType.ORPO else set()
        assert options == FLAGS[each] - lacking
        assert flags | SHARED <= options


@pytest.mark.parametrize("device", ["cpu", "cuda"])
@pytest.mark.parametrize("config", list(configs()), ids=kind)
def test_every_flag_is_one_of_this_version(
    config: TRLConfig, device: Any, context: RenderContext
) -> None:
    args = config.to_args(replace(context, device=device))
    # By full name: the parser itself takes abbreviations.
    assert {arg[2:] for arg in args if arg.startswith("--")} <= FLAGS[config.trainer_type]
    script(config.trainer_type).make_parser().parse_args(args)


def test_every_flag_of_the_table_is_one_that_we_give(context: RenderContext) -> None:
    for each, flags in VERSIONS[PINNED].items():
        given: set[str] = set()
        for config in configs():
            if config.trainer_type is each:
                half = replace(config, fp16=True, max_steps=9, peft_config=TRLPeftConfig())
                quantized = replace(
                    config, peft_config=TRLPeftConfig(load_in_4bit=True), eval_steps=5
                )
                on_gpu = replace(context, device="cuda")
                on_gpus = replace(on_gpu, processes=2)
                args = [
                    *half.to_args(context),
                    *config.to_args(context),
                    *quantized.to_args(on_gpu),
                    *replace(config, sharding="fsdp2").to_args(on_gpus),
                    *replace(config, sharding="zero3").to_args(on_gpus),
                ]
                given |= {arg[2:] for arg in args if arg.startswith("--")}
        idle = set() if each is TRLTrainerType.REWARD else {"lora_task_type"}
        assert given == (flags | SHARED) - idle


@pytest.mark.parametrize("config", list(configs()), ids=kind)
def test_trl_reads_what_we_meant(config: TRLConfig, context: RenderContext) -> None:
    parser = script(config.trainer_type).make_parser()
    asked, training, model, _ = parser.parse_args_and_config(config.to_args(context))
    assert asked.dataset_name == str(context.dataset)
    assert model.model_name_or_path == str(context.model)
    assert training.output_dir == str(context.output)
    assert training.resume_from_checkpoint == str(context.resume_from)
    assert (training.use_cpu, training.bf16, model.dtype) == (True, False, "float32")
    assert (training.learning_rate, training.seed) == (2e-5, 3)
    assert (training.num_train_epochs, training.max_steps) == (3, config.max_steps or -1)
    assert training.warmup_steps == 0.03
    assert training.gradient_checkpointing is (config.gradient_checkpointing is True)
    assert training.lr_scheduler_type == config.lr_scheduler_type
    assert (training.save_strategy, training.eval_strategy) == ("epoch", "epoch")
    assert training.enable_jit_checkpoint is True
    assert training.report_to == []
    assert training.push_to_hub is training.trust_remote_code is False
    _check_method(config, training, asked)
    _check_adapter(config, model)


def test_trl_reads_a_quantized_base_as_qlora_does(context: RenderContext) -> None:
    config = TRLConfig(peft_config=TRLPeftConfig(load_in_4bit=True))
    args = config.to_args(replace(context, device="cuda"))
    # bf16 is a GPU's; the parser itself asks for one.
    args[args.index("--bf16") + 1] = "false"
    _, _, model, _ = script(TRLTrainerType.SFT).make_parser().parse_args_and_config(args)
    assert (model.load_in_4bit, model.bnb_4bit_quant_type) == (True, "nf4")
    assert model.use_bnb_nested_quant is True


def _check_method(config: TRLConfig, training: Any, asked: Any) -> None:
    given = {name: value for name, value in vars(config.method).items() if value is not None}
    if (length := given.pop("max_seq_length", None)) is not None:
        given["max_length"] = length
    if config.trainer_type is TRLTrainerType.DPO:
        given["loss_type"] = [given["loss_type"]]
    for name, value in given.items():
        # The rewards are the script's to load, and no setting of the trainer.
        holder = asked if name.startswith("reward_") else training
        assert getattr(holder, name) == value, name


def _check_adapter(config: TRLConfig, model: Any) -> None:
    peft = config.peft_config
    assert model.use_peft is (peft is not None)
    if peft is None:
        return
    assert (model.lora_r, model.lora_alpha) == (peft.r, peft.lora_alpha)
    assert model.lora_dropout == peft.lora_dropout
    assert (model.use_rslora, model.use_dora) == (peft.use_rslora, peft.use_dora)
    scores = config.trainer_type is TRLTrainerType.REWARD
    assert model.lora_task_type == ("SEQ_CLS" if scores else "CAUSAL_LM")
    if isinstance(peft.target_modules, str):
        assert model.lora_target_modules == peft.target_modules
    else:
        # A list stays one: PEFT reads a text as a pattern of the whole path.
        assert isinstance(model.lora_target_modules, list)
        assert set(model.lora_target_modules) == set(peft.target_modules)
