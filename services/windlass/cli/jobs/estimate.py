"""Estimate of what a training would make of a file, by the platform's own rules."""

from dataclasses import dataclass
from math import ceil
from typing import TYPE_CHECKING

from windlass.cli.framework.columns import Item
from windlass.cli.framework.failures import USAGE, Problem
from windlass.cli.jobs.methods import MethodName
from windlass.cli.jobs.speed import TrainingSpeed

if TYPE_CHECKING:
    from windlass.datasets.checking import FileCheck
    from windlass.datasets.token_counts import TokenCounts, Tokenizer

# Defaults of `windlass.config`; docs/reference/hyperparameters.md says the same.
MAX_LENGTH = 2048
MAX_COMPLETION = 512
# They write answers themselves, which take part of the model's context.
_SAMPLING = (MethodName.REINFORCEMENT, MethodName.RLOO, MethodName.DISTILLATION)
_BY_FORMAT = {
    "chat": MethodName.SUPERVISED,
    "preference": MethodName.DPO,
    "unpaired_preference": MethodName.KTO,
    "reinforcement": MethodName.REINFORCEMENT,
}


@dataclass(frozen=True)
class BaseModel:
    """Facts of a base model, None while unknown; `name` is the server's, `context` in tokens."""

    name: str = ""
    bytes: int | None = None
    context: int | None = None
    tokenizer: "Tokenizer | None" = None


def limit_of(method: MethodName | None, max_length: int | None, context: int | None) -> int | None:
    """The tokens that a trainer cuts an example at; raises Problem."""
    if method not in _SAMPLING:
        return max_length or MAX_LENGTH
    if max_length is not None:
        raise Problem(f"--max-length cannot be combined with --method {method}.", USAGE)
    return None if context is None else context - min(MAX_COMPLETION, context // 2)


def method_of(found: "FileCheck", asked: MethodName | None) -> MethodName:
    """Returns the method that a sound file is for, unless another one is asked for."""
    return asked or _BY_FORMAT[str(found.format)]


def estimate(
    found: "FileCheck",
    counts: "TokenCounts",
    base: BaseModel,
    method: MethodName,
    asked: Item,
) -> Item:
    """The training of a sound file: epochs, batch and steps, and the memory of its weights."""
    from windlass.backends import InvalidConfig, Sizing
    from windlass.backends.hyperparameters import REFERENCE_BYTES, numbers
    from windlass.backends.sharding import LORA_FACTOR

    sizing = Sizing(examples=found.examples, model_bytes=base.bytes or REFERENCE_BYTES)
    given = {name: value for name, value in asked.items() if value is not None}
    try:
        shown = numbers(method.value, given, sizing=sizing, nodes=1)
    except InvalidConfig as error:
        raise Problem(str(error), USAGE) from None
    epochs, batch = shown["n_epochs"], shown["batch_size"]
    rows = counts.kept
    if method is MethodName.KTO and found.format == "preference":
        # TRL takes pairs apart.
        rows *= 2
    # TRL leaves out a batch of prompts that is not full.
    steps = rows // batch if method in _SAMPLING else ceil(rows / batch)
    training: Item = {"method": method.value, "n_epochs": epochs, "batch_size": batch}
    training |= {"steps": epochs * steps}
    if method not in _SAMPLING:
        training["tokens"] = epochs * counts.trained
    training["basis"] = _basis(base)
    if base.bytes is None:
        return {"training": training}
    memory = {
        "least_bytes": base.bytes * LORA_FACTOR,
        "basis": "weights with an adapter; activations come on top",
    }
    return {"training": training, "memory": memory}


def _basis(base: BaseModel) -> str:
    if base.bytes is None:
        return "one process; a base model of 100 MB or more"
    return "one process; this base model"


def time_of(training: Item, speed: TrainingSpeed | None) -> Item:
    """Returns the seconds of a training's steps, None where no speed is known, and the basis."""
    if "tokens" not in training:
        basis = "the model writes answers while it trains, whose lengths are not known before"
    elif speed is None:
        basis = (
            "it needs a speed, given by --tokens-per-second, or of a job that trained the server's "
            f"model by {training['method']} (--model NAME)"
        )
    else:
        basis = (
            f"training steps at {speed.tokens_per_second:,.0f} tokens/s, {speed.source}; its "
            "start, evaluations and checkpoints come on top"
        )
        return {"seconds": ceil(training["tokens"] / speed.tokens_per_second), "basis": basis}
    return {"seconds": None, "basis": basis}


def as_text(time: Item) -> str:
    """Returns an estimate of time for people."""
    if time["seconds"] is None:
        return f"unknown: {time['basis']}"
    minutes, seconds = divmod(time["seconds"], 60)
    return f"{minutes // 60}:{minutes % 60:02}:{seconds:02} of {time['basis']}"
