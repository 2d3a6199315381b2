"""Checks for what TRL cannot train with, made before a pod starts."""

import warnings
from math import prod
from pathlib import PurePath

from windlass.backends.backend import InvalidConfig, RenderContext
from windlass.backends.methods import ONLINE, TrainerType
from windlass.backends.train_job import node_resources
from windlass.backends.trl.document import OF_METHOD, TRLTraining
from windlass.backends.trl.fields import TRLFields
from windlass.backends.trl.methods import (
    METHODS,
    TRLDistillationConfig,
    TRLGRPOConfig,
    TRLKTOConfig,
    TRLRLOOConfig,
    TRLSFTConfig,
    TRLTrainerType,
)
from windlass.backends.trl.versions import VERSIONS
from windlass.kubernetes.resources import NVIDIA_GPU

_FILES = frozenset({".json", ".jsonl", ".csv", ".parquet", ".arrow", ".txt"})


def check(config: TRLFields) -> None:
    """Raises InvalidConfig for a combination of values that no training can have."""
    _check_release(config)
    kind = TRLTrainerType(config.trainer_type)
    for other, settings in METHODS.items():
        given = getattr(config, f"{other}_config")
        if given is not None and other is not kind:
            raise InvalidConfig(
                f"{other}_config", f"applies to trainer_type {other} only, and this is {kind}"
            )
        if given is not None and not isinstance(given, settings):
            raise InvalidConfig(f"{other}_config", f"is not a {settings.__name__}")
    if config.bf16 and config.fp16:
        raise InvalidConfig("fp16", "cannot be enabled together with bf16")
    _check_method(config)


def check_document(training: TRLTraining, *, at: str) -> None:
    """Raises InvalidConfig for a setting of another method."""
    kind = training.trainer_type
    for field in sorted({name for names in OF_METHOD.values() for name in names}):
        if field not in OF_METHOD[kind] and getattr(training, field) is not None:
            others = [str(other) for other, names in OF_METHOD.items() if field in names]
            raise InvalidConfig(f"{at}{field}", f"applies to {', '.join(others)} alone")
    if training.from_adapter and training.peft is None:
        raise InvalidConfig(f"{at}peft", "is required: training continues an adapter")
    is_divergence = kind is TrainerType.DISTILLATION
    may_be_zero = is_divergence or kind in ONLINE
    if training.beta is not None and not may_be_zero and not training.beta:
        raise InvalidConfig(f"{at}beta", "must be greater than 0")
    if training.beta is not None and is_divergence and training.beta > 1:
        raise InvalidConfig(f"{at}beta", "of distillation must be between 0 and 1")
    if is_divergence and training.teacher is None:
        raise InvalidConfig(f"{at}teacher", "is required: the model to learn from")
    if kind in ONLINE and training.grader is None:
        raise InvalidConfig(f"{at}grader", "is required: it rewards an answer")


def check_place(config: TRLFields, context: RenderContext) -> None:
    """Raises InvalidConfig for a dataset that TRL cannot load, and for a place without a GPU."""
    quantized = config.peft_config is not None and config.peft_config.load_in_4bit
    if quantized and context.device == "cpu":
        raise InvalidConfig(
            "windlass.config.load_in_4bit",
            "needs a GPU (QLoRA), and the machine that the job was given has none",
        )
    if config.dataset_name is None and PurePath(context.dataset).suffix in _FILES:
        raise InvalidConfig(
            "initializer.dataset", "TRL loads a folder: name the one that holds the file"
        )


def _check_release(config: TRLFields) -> None:
    release = VERSIONS.get(config.trl_version)
    if release is None:
        raise InvalidConfig(
            "trl_version", f"'{config.trl_version}' is not one of {', '.join(VERSIONS)}"
        )
    if config.trainer_type == TRLTrainerType.PPO:
        raise InvalidConfig(
            "trainer_type",
            f"TRL {config.trl_version} has no PPO trainer; grpo and rloo learn from rewards too,"
            " without a model of values",
        )
    if config.trainer_type not in release:
        raise InvalidConfig(
            "trainer_type", f"TRL {config.trl_version} cannot train {config.trainer_type}"
        )


def _check_method(config: TRLFields) -> None:
    at = f"{config.trainer_type}_config"
    match config.method:
        case TRLSFTConfig() as sft:
            if sft.max_length and sft.max_seq_length and sft.max_length != sft.max_seq_length:
                raise InvalidConfig(f"{at}.max_seq_length", "was renamed; use max_length")
            if sft.assistant_only_loss and sft.dataset_text_field:
                raise InvalidConfig(
                    f"{at}.assistant_only_loss", "requires rows of messages, not of text"
                )
        case TRLKTOConfig(loss_type="kto") if config.per_device_train_batch_size < 2:
            raise InvalidConfig(
                "per_device_train_batch_size",
                "must be 2 or more: kto compares the answers of one batch",
            )
        case TRLGRPOConfig() | TRLRLOOConfig() as online:
            if not (online.grader or online.reward_funcs or online.reward_model_name_or_path):
                raise InvalidConfig(
                    f"{at}.reward_funcs",
                    "or reward_model_name_or_path must be set: it defines the reward",
                )
            _check_groups(config, online.num_generations, at=at)
        case TRLDistillationConfig(teacher_model_name_or_path=None):
            raise InvalidConfig(
                f"{at}.teacher_model_name_or_path", "is required: the model to learn from"
            )
    if getattr(config.method, "max_prompt_length", None) is not None:
        warnings.warn(
            f"{at}.max_prompt_length has no effect: TRL {config.trl_version} limits all at once",
            stacklevel=4,
        )


def _check_groups(config: TRLFields, generations: int, *, at: str) -> None:
    """A step's answers are whole groups; how many processes answer is known of GPUs alone."""
    gpus = node_resources(config.resources_per_node or {}).get(NVIDIA_GPU)
    if gpus is None or not str(gpus).isdigit():
        return
    processes = (config.num_nodes or 1) * max(1, int(gpus))
    answers = prod(
        (processes, config.per_device_train_batch_size, config.gradient_accumulation_steps)
    )
    if answers % generations:
        raise InvalidConfig(
            f"{at}.num_generations", f"must divide the {answers} answers that one step has"
        )
