"""TRL 1.16.0's flags for a configuration.

Every boolean is written out (`--flag true`): some have no bare form, and some default to true.
"""

from collections.abc import Iterator

from windlass.backends.backend import RenderContext
from windlass.backends.trl_config import Lora, TrainerType, TRLConfig

Flag = tuple[str, object]


def render(config: TRLConfig, context: RenderContext | None) -> list[str]:
    """Returns the arguments in a fixed order; without a context, those that need no place."""
    args: list[str] = []
    for name, value in _flags(config, context):
        args.append(f"--{name}")
        args.extend(_text(each) for each in (value if isinstance(value, tuple) else (value,)))
    return args


def _flags(config: TRLConfig, context: RenderContext | None) -> Iterator[Flag]:
    if context is not None:
        yield from _places(context)
        yield from _device(config, context)
    yield from _schedule(config)
    yield from _method(config)
    if config.peft is not None:
        yield from _lora(config.peft)
    yield "logging_steps", config.logging_steps
    yield "disable_tqdm", True
    yield "report_to", "none"
    yield "save_strategy", "epoch"
    yield "enable_jit_checkpoint", True


def _places(context: RenderContext) -> Iterator[Flag]:
    yield "model_name_or_path", context.model
    yield "dataset_name", context.dataset
    yield "output_dir", context.output
    yield "eval_strategy", "epoch" if context.has_validation else "no"
    if context.resume_from is not None:
        yield "resume_from_checkpoint", context.resume_from


def _device(config: TRLConfig, context: RenderContext) -> Iterator[Flag]:
    on_cpu = context.device == "cpu"
    yield "use_cpu", on_cpu
    yield "bf16", not on_cpu
    # Frozen weights need no float32 copy; trained ones do.
    yield "dtype", "bfloat16" if config.peft is not None and not on_cpu else "float32"
    checkpointing = config.gradient_checkpointing
    yield "gradient_checkpointing", not on_cpu if checkpointing is None else checkpointing
    yield "dataloader_pin_memory", not on_cpu


def _schedule(config: TRLConfig) -> Iterator[Flag]:
    yield "num_train_epochs", config.epochs
    if config.max_steps is not None:
        yield "max_steps", config.max_steps
    yield "per_device_train_batch_size", config.batch_size
    yield "per_device_eval_batch_size", config.batch_size
    yield "gradient_accumulation_steps", config.gradient_accumulation_steps
    yield "learning_rate", config.learning_rate
    yield "lr_scheduler_type", config.lr_scheduler
    # Below 1 it is a part of all steps.
    yield "warmup_steps", config.warmup_ratio
    yield "weight_decay", config.weight_decay
    yield "max_length", config.max_length
    yield "seed", config.seed


def _method(config: TRLConfig) -> Iterator[Flag]:
    match config.trainer_type:
        case TrainerType.SFT:
            yield "assistant_only_loss", config.assistant_only_loss is not False
            yield "packing", config.packing is True
        case TrainerType.DPO:
            yield "beta", 0.1 if config.beta is None else config.beta
            yield "loss_type", "sigmoid"


def _lora(peft: Lora) -> Iterator[Flag]:
    yield "use_peft", True
    yield "lora_r", peft.r
    yield "lora_alpha", peft.alpha
    yield "lora_dropout", peft.dropout
    modules = peft.target_modules
    if not isinstance(modules, str):
        # TRL turns a list of one into a text, which PEFT then matches against whole paths.
        yield "lora_target_modules", tuple(modules * 2 if len(modules) == 1 else modules)
    else:
        yield "lora_target_modules", modules
    yield "use_rslora", peft.use_rslora
    yield "use_dora", peft.use_dora


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
