"""TRL's flags for a configuration.

Every boolean is written out (`--flag true`): some have no bare form, and some default to true.
"""

from collections.abc import Iterator
from dataclasses import fields

from windlass.backends.backend import InvalidConfig, RenderContext
from windlass.backends.sharding import sharding_flags
from windlass.backends.trl.checks import check_place
from windlass.backends.trl.fields import TRLFields
from windlass.backends.trl.methods import (
    Method,
    TRLDistillationConfig,
    TRLGRPOConfig,
    TRLPeftConfig,
    TRLRLOOConfig,
    TRLSFTConfig,
    TRLTrainerType,
)
from windlass.backends.trl.versions import SHARED, VERSIONS

Flag = tuple[str, object]

# The reward function that goes by a job's grader.
GRADED = "windlass_agent.runner.grading.rewards.graded"
# The role of a distillation's other model.
TEACHER = "teacher"
# Names of the KEP that no release of ours takes.
_FORMER = frozenset({"max_seq_length", "max_prompt_length"})


def render(config: TRLFields, context: RenderContext) -> list[str]:
    """Returns the arguments in a fixed order; raises InvalidConfig for a flag TRL has not."""
    check_place(config, context)
    known = SHARED | VERSIONS[config.trl_version][TRLTrainerType(config.trainer_type)]
    args: list[str] = []
    for name, value in _flags(config, context):
        if name not in known:
            raise InvalidConfig(name, f"TRL {config.trl_version} has no such flag")
        args.append(f"--{name}")
        args.extend(_text(each) for each in (value if isinstance(value, tuple) else (value,)))
    return args


def _flags(config: TRLFields, context: RenderContext) -> Iterator[Flag]:
    yield from _places(config, context)
    yield from _device(config, context)
    yield from _schedule(config)
    yield from _method(config, context)
    if config.peft_config is not None:
        yield from _lora(config.peft_config)
        if config.trainer_type == TRLTrainerType.REWARD:
            yield "lora_task_type", "SEQ_CLS"
    yield "logging_steps", config.logging_steps
    yield "disable_tqdm", True
    yield "report_to", "none"
    yield "save_strategy", "epoch"
    yield "enable_jit_checkpoint", True


def _places(config: TRLFields, context: RenderContext) -> Iterator[Flag]:
    yield "model_name_or_path", config.model_name_or_path or context.model
    yield "dataset_name", config.dataset_name or context.dataset
    yield "output_dir", config.output_dir or context.output
    yield from _evaluation(config, context)
    if context.resume_from is not None:
        yield "resume_from_checkpoint", context.resume_from


def _evaluation(config: TRLFields, context: RenderContext) -> Iterator[Flag]:
    if not context.has_validation:
        yield "eval_strategy", "no"
    elif config.eval_steps is None:
        yield "eval_strategy", "epoch"
    else:
        yield "eval_strategy", "steps"
        yield "eval_steps", config.eval_steps


def _device(config: TRLFields, context: RenderContext) -> Iterator[Flag]:
    on_cpu = context.device == "cpu"
    bf16 = not (on_cpu or config.fp16) if config.bf16 is None else config.bf16
    yield "use_cpu", on_cpu
    yield "bf16", bf16
    if config.fp16:
        yield "fp16", True
    # Frozen weights need no float32 copy; trained ones do.
    yield "dtype", "bfloat16" if config.peft_config is not None and bf16 else "float32"
    checkpointing = config.gradient_checkpointing
    checkpointing = not on_cpu if checkpointing is None else checkpointing
    # The launcher of a TrainJob's pods knows how many they are; this does not.
    several = context.nodes * context.processes > 1 or not context.managed
    if config.sharding is None or on_cpu or not several:
        yield "gradient_checkpointing", checkpointing
    else:
        # FSDP does it itself, and would not have it done twice.
        is_fsdp = config.sharding.startswith("fsdp")
        yield "gradient_checkpointing", checkpointing and not is_fsdp
        yield from sharding_flags(config.sharding, activation_checkpointing=checkpointing)
    yield "dataloader_pin_memory", not on_cpu


def _schedule(config: TRLFields) -> Iterator[Flag]:
    yield "num_train_epochs", config.num_train_epochs
    if config.max_steps is not None:
        yield "max_steps", config.max_steps
    yield "per_device_train_batch_size", config.per_device_train_batch_size
    yield "per_device_eval_batch_size", _eval_batch_size(config)
    yield "gradient_accumulation_steps", config.gradient_accumulation_steps
    yield "learning_rate", config.learning_rate
    yield "lr_scheduler_type", config.lr_scheduler_type
    # Below 1 it is a part of all steps.
    yield "warmup_steps", config.warmup_ratio
    yield "weight_decay", config.weight_decay
    if (length := _length(config.method)) is not None:
        yield "max_length", length
    yield "seed", config.seed


def _eval_batch_size(config: TRLFields) -> int:
    method = config.method
    if isinstance(method, TRLGRPOConfig | TRLRLOOConfig) and method.grader is not None:
        # An evaluation's batch is whole groups, whatever the processes.
        return method.num_generations_eval or method.num_generations
    return config.per_device_train_batch_size


def _length(method: Method) -> int | None:
    return (
        method.tokens if isinstance(method, TRLSFTConfig) else getattr(method, "max_length", None)
    )


def _method(config: TRLFields, context: RenderContext) -> Iterator[Flag]:
    settings = dict(vars(config.method))
    if isinstance(config.method, TRLDistillationConfig) and context.managed:
        # The name is the project's; to TRL it would be a model of the hub.
        settings["teacher_model_name_or_path"] = context.companions[TEACHER]
    if settings.pop("grader", None) is not None and context.managed:
        settings["reward_funcs"] = [GRADED]
    for name, value in sorted(settings.items()):
        if value is not None and name != "max_length" and name not in _FORMER:
            yield name, tuple(value) if isinstance(value, list) else value


def _lora(peft: TRLPeftConfig) -> Iterator[Flag]:
    yield "use_peft", True
    for setting in fields(peft):
        value = getattr(peft, setting.name)
        if setting.metadata.get("later") and value == setting.default:
            continue
        if isinstance(value, list):
            # TRL turns a list of one into a text, which PEFT then matches against whole paths.
            value = tuple(value * 2 if len(value) == 1 else value)
        yield setting.metadata.get("flag", setting.name), value
    if peft.load_in_4bit:
        yield "bnb_4bit_quant_type", "nf4"
        yield "use_bnb_nested_quant", True


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
