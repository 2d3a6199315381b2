"""`TRLConfig` as its callers write it, with the names of KEP-2839 and ours."""

from dataclasses import fields, replace
from typing import Any

import pytest

from windlass.backends import (
    InvalidConfig,
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
from windlass.backends.trl.methods import METHODS
from windlass.backends.trl.versions import PINNED, VERSIONS

REWARDED = TRLGRPOConfig(reward_funcs=["accuracy_reward"])
# One of each method that can be trained.
TRAINABLE = (
    TRLConfig(),
    TRLConfig(trainer_type=TRLTrainerType.DPO),
    TRLConfig(trainer_type=TRLTrainerType.ORPO, orpo_config=TRLORPOConfig(beta=0.2)),
    TRLConfig(trainer_type=TRLTrainerType.KTO, kto_config=TRLKTOConfig()),
    TRLConfig(trainer_type=TRLTrainerType.GRPO, grpo_config=REWARDED),
    TRLConfig(
        trainer_type=TRLTrainerType.RLOO,
        rloo_config=TRLRLOOConfig(reward_model_name_or_path="/workspace/judge"),
    ),
    TRLConfig(trainer_type=TRLTrainerType.REWARD, reward_config=TRLRewardConfig()),
    TRLConfig(
        trainer_type=TRLTrainerType.DISTILLATION,
        distillation_config=TRLDistillationConfig("/workspace/teacher"),
    ),
)


def flags(config: TRLConfig) -> dict[str, list[str]]:
    """The values by flag."""
    found: dict[str, list[str]] = {}
    for arg in config.to_args():
        if arg.startswith("--"):
            values = found.setdefault(arg[2:], [])
        else:
            values.append(arg)
    return found


def test_every_method_has_its_settings_in_a_field_of_its_name() -> None:
    names = {one.name for one in fields(TRLConfig)}
    assert {f"{kind}_config" for kind in METHODS} <= names
    assert set(METHODS) == set(TRLTrainerType) - {TRLTrainerType.PPO}
    assert {config.trainer_type for config in TRAINABLE} == set(METHODS)
    assert set(METHODS) == set(VERSIONS[PINNED])


@pytest.mark.parametrize("config", TRAINABLE, ids=lambda config: str(config.trainer_type))
def test_a_pod_runs_the_script_of_the_method(config: TRLConfig) -> None:
    script = config.to_command()
    ours = config.trainer_type is TRLTrainerType.ORPO
    module = (
        "windlass_agent.runner.trainers.trl.orpo" if ours else f"trl.scripts.{config.trainer_type}"
    )
    assert script == ("torchrun", "-m", module)
    found = flags(config)
    # TrainJob's arguments take the place of the runtime's, so nothing may be missing.
    assert found["model_name_or_path"] == ["/workspace/model"]
    assert found["dataset_name"] == ["/workspace/dataset"]
    assert found["output_dir"] == ["/workspace/output"]


def test_the_names_of_the_kep_are_taken() -> None:
    config = TRLConfig(
        trainer_type=TRLTrainerType.SFT,
        model_name_or_path="/models/base",
        learning_rate=1e-4,
        num_train_epochs=2,
        per_device_train_batch_size=8,
        gradient_accumulation_steps=2,
        bf16=False,
        fp16=True,
        peft_config=TRLPeftConfig(r=8, lora_alpha=16, lora_dropout=0.1, use_rslora=True),
        sft_config=TRLSFTConfig(max_seq_length=512, packing=True, dataset_text_field="text"),
        output_dir="/models/tuned",
        num_nodes=2,
        resources_per_node={"gpu": 1},
    )
    found = flags(config)
    assert (
        found.items()
        >= {
            "model_name_or_path": ["/models/base"],
            "output_dir": ["/models/tuned"],
            "learning_rate": ["0.0001"],
            "num_train_epochs": ["2"],
            "per_device_train_batch_size": ["8"],
            "gradient_accumulation_steps": ["2"],
            "bf16": ["false"],
            "fp16": ["true"],
            "max_length": ["512"],
            "packing": ["true"],
            "dataset_text_field": ["text"],
            "lora_r": ["8"],
            "lora_alpha": ["16"],
            "lora_target_modules": ["q_proj", "v_proj"],
            "use_rslora": ["true"],
        }.items()
    )
    assert "max_seq_length" not in found
    assert (config.num_nodes, config.resources_per_node) == (2, {"gpu": 1})


def test_a_length_of_prompts_is_taken_and_said_to_be_without_effect() -> None:
    config = TRLConfig(
        trainer_type=TRLTrainerType.DPO,
        dpo_config=TRLDPOConfig(beta=0.2, max_length=512, max_prompt_length=256),
    )
    with pytest.warns(UserWarning, match=r"max_prompt_length has no effect: TRL 1\.16\.0"):
        found = flags(config)
    assert (found["max_length"], found["beta"]) == (["512"], ["0.2"])
    assert "max_prompt_length" not in found


def test_a_method_may_be_named_by_its_text() -> None:
    text: Any = "grpo"
    config = TRLConfig(trainer_type=text, grpo_config=REWARDED)
    assert config.to_command() == ("torchrun", "-m", "trl.scripts.grpo")
    assert flags(config)["reward_funcs"] == ["accuracy_reward"]


def test_a_scoring_model_gets_the_adapter_of_one() -> None:
    config = TRLConfig(trainer_type=TRLTrainerType.REWARD, peft_config=TRLPeftConfig())
    assert flags(config)["lora_task_type"] == ["SEQ_CLS"]


# What types forbid, and a caller without types gives.
UNKNOWN: Any = "unknown"
OF_DPO: Any = TRLDPOConfig()


def grpo(**settings: Any) -> TRLConfig:
    return TRLConfig(trainer_type=TRLTrainerType.GRPO, **{"grpo_config": REWARDED} | settings)


@pytest.mark.parametrize(
    ("config", "field", "sentence"),
    [
        (TRLConfig(trainer_type=TRLTrainerType.PPO), "trainer_type", "grpo and rloo"),
        (TRLConfig(trainer_type=UNKNOWN), "trainer_type", "unknown"),
        (TRLConfig(trl_version="0.15.2"), "trl_version", r"not one of 1\.0\.0, 1\.13\.0, 1\.16\.0"),
        (replace(TRAINABLE[-1], trl_version="1.0.0"), "trainer_type", "cannot train distillation"),
        (TRLConfig(bf16=True, fp16=True), "fp16", "together with bf16"),
        (
            TRLConfig(trainer_type=TRLTrainerType.DPO, sft_config=TRLSFTConfig()),
            "sft_config",
            "trainer_type sft only, and this is dpo",
        ),
        (TRLConfig(dpo_config=TRLDPOConfig()), "dpo_config", "trainer_type dpo only"),
        (TRLConfig(sft_config=OF_DPO), "sft_config", "TRLSFTConfig"),
        (
            TRLConfig(sft_config=TRLSFTConfig(max_seq_length=512, max_length=256)),
            "sft_config.max_seq_length",
            "was renamed",
        ),
        (
            TRLConfig(sft_config=TRLSFTConfig(assistant_only_loss=True, dataset_text_field="text")),
            "sft_config.assistant_only_loss",
            "messages",
        ),
        (
            TRLConfig(trainer_type=TRLTrainerType.KTO, per_device_train_batch_size=1),
            "per_device_train_batch_size",
            "2 or more",
        ),
        (TRLConfig(trainer_type=TRLTrainerType.RLOO), "rloo_config.reward_funcs", "reward"),
        (
            grpo(resources_per_node={"gpu": 1}, per_device_train_batch_size=6),
            "grpo_config.num_generations",
            "must divide the 6 answers",
        ),
        (
            TRLConfig(trainer_type=TRLTrainerType.DISTILLATION),
            "distillation_config.teacher_model_name_or_path",
            "learn from",
        ),
        (TRLConfig(learning_rate=0), "learning_rate", "> 0"),
        (TRLConfig(peft_config=TRLPeftConfig(r=0)), "peft_config.r", ">= 1"),
        (TRLConfig(model_name_or_path="--report_to"), "model_name_or_path", "matching"),
    ],
)
def test_what_cannot_be_trained_is_refused_with_a_sentence(
    config: TRLConfig, field: str, sentence: str
) -> None:
    for refused in (config.validate, config.to_args, config.to_command):
        with pytest.raises(InvalidConfig, match=sentence) as caught:
            refused()
        assert caught.value.field == field


def test_more_processes_make_whole_groups() -> None:
    grpo(resources_per_node={"gpu": 2}, per_device_train_batch_size=6).validate()
    # Without GPUs nobody knows how many there are.
    grpo(per_device_train_batch_size=6).validate()


@pytest.mark.parametrize(
    "config",
    [
        TRLConfig(model_name_or_path="/models/other"),
        TRLConfig(bf16=True),
        TRLConfig(resources_per_node={"gpu": 1}),
        TRLConfig(sft_config=TRLSFTConfig(dataset_text_field="text")),
        TRLConfig(per_device_train_batch_size=512),
        grpo(),
    ],
)
def test_a_job_is_not_told_what_the_platform_decides(config: TRLConfig) -> None:
    config.validate()
    with pytest.raises(InvalidConfig):
        config.to_document()
