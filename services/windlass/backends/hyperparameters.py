"""OpenAI's hyperparameters, and what "auto" means here.

* `n_epochs`: three passes, more for a small file until there are enough steps (50, or 200 to
  teach a model below 100 MB of weights, which starts from little; at most 25 epochs), and fewer
  for a large one, to stay near 25,000 examples in all.
* `batch_size`: a sixteenth of the examples, as a power of two, from 1 (KTO: 2) to 16.
* `learning_rate_multiplier`: 1. It multiplies a rate that falls with the size of the model:
  `rate at 14 GB x (14 GB / weights)^exponent`, at most 0.01, by method and by LoRA or full.
* `beta` of DPO: 0.1.

`docs/reference/hyperparameters.md` says the same with numbers, and is tested against this.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil
from typing import Annotated, Any, Literal, TypeVar

from msgspec import Meta, Struct

from windlass.backends import methods
from windlass.backends.backend import InvalidConfig, Sizing
from windlass.backends.bounds import DEFAULT_BETA, BatchSize, Beta, Epochs
from windlass.backends.methods import ONLINE, TrainerType
from windlass.backends.reinforcement import (
    GENERATIONS,
    Reinforcement,
    Sampling,
    decode_reinforcement,
    sampling,
)
from windlass.backends.typed import decode

V = TypeVar("V", int, float)

Auto = Literal["auto"] | None
Multiplier = Annotated[float, Meta(gt=0, le=1000)]

SMALL_MODEL_BYTES = 100_000_000
REFERENCE_BYTES = 14_000_000_000
MAX_LEARNING_RATE = 0.01
MAX_AUTO_EPOCHS = 25
MAX_AUTO_EXAMPLES = 25_000

METHODS = {
    "supervised": TrainerType.SFT,
    "dpo": TrainerType.DPO,
    "reinforcement": TrainerType.GRPO,
    **{method: TrainerType(method) for method in methods.OURS},
    "rloo": TrainerType.RLOO,
}
# (rate at the reference size, exponent): LoRA's best rate is about ten times that of full
# fine-tuning and falls more slowly with size. At the small end they are measured, with a model
# of 0.7 M parameters: more breaks it (DPO first of all), a third of it no longer teaches it.
_RATES = {
    (TrainerType.SFT, True): (2e-4, 0.4),
    (TrainerType.SFT, False): (2e-5, 0.5),
    (TrainerType.DPO, True): (5e-5, 0.13),
    (TrainerType.DPO, False): (1e-6, 0.3),
    (TrainerType.KTO, True): (5e-5, 0.13),
    (TrainerType.KTO, False): (1e-6, 0.3),
    (TrainerType.ORPO, True): (8e-5, 0.3),
    (TrainerType.ORPO, False): (8e-6, 0.4),
    (TrainerType.REWARD, True): (1e-4, 0.3),
    (TrainerType.REWARD, False): (1e-5, 0.4),
    # A policy moves faster than imitation, and what it has not sampled it cannot learn.
    (TrainerType.GRPO, True): (2e-5, 0.55),
    (TrainerType.GRPO, False): (2e-6, 0.7),
    (TrainerType.RLOO, True): (2e-5, 0.55),
    (TrainerType.RLOO, False): (2e-6, 0.7),
    (TrainerType.DISTILLATION, True): (2e-4, 0.4),
    (TrainerType.DISTILLATION, False): (2e-5, 0.5),
}
# KTO compares the answers of one forward pass with each other.
_LEAST_PASS = {TrainerType.KTO: 2}
# Examples in one forward pass, by bytes of weights; the rest of a batch is accumulated.
_PASS_SIZES = ((SMALL_MODEL_BYTES, 32), (4_000_000_000, 8), (40_000_000_000, 4))


class Supervised(Struct, frozen=True, forbid_unknown_fields=True):
    """OpenAI's hyperparameters of the supervised method, and those of ours."""

    n_epochs: Auto | Epochs = "auto"
    batch_size: Auto | BatchSize = "auto"
    learning_rate_multiplier: Auto | Multiplier = "auto"


class Preference(Struct, frozen=True, forbid_unknown_fields=True):
    """OpenAI's hyperparameters of the DPO method."""

    n_epochs: Auto | Epochs = "auto"
    batch_size: Auto | BatchSize = "auto"
    learning_rate_multiplier: Auto | Multiplier = "auto"
    beta: Auto | Beta = "auto"


@dataclass(frozen=True)
class Resolved:
    """Hyperparameters with no "auto" left; `batch_size` is what one step sees on all nodes.

    `sampling` is of methods that learn from answers of their own, each to an example of a batch.
    """

    trainer_type: TrainerType
    epochs: int
    batch_size: int
    learning_rate: float
    beta: float | None
    sampling: Sampling | None = None


def resolve(
    method: str, hyperparameters: Mapping[str, Any], *, lora: bool, sizing: Sizing
) -> Resolved:
    """Resolves OpenAI's hyperparameters; raises InvalidConfig naming the request's field."""
    trainer = METHODS.get(method)
    if trainer is None:
        raise InvalidConfig(
            methods.field_of(method), f"'{method}' is not one of {', '.join(METHODS)}"
        )
    at = methods.hyperparameters_of(method)
    asked: Supervised | Preference | Reinforcement
    if trainer is TrainerType.DPO:
        asked = decode(hyperparameters, Preference, at=at)
    elif trainer in ONLINE:
        asked = decode_reinforcement(hyperparameters, at=at)
    else:
        asked = decode(hyperparameters, Supervised, at=at)
    least = least_pass(trainer)
    batch_size = _or_auto(asked.batch_size, max(least, auto_batch_size(sizing)))
    if batch_size < least:
        raise InvalidConfig(f"{at}.batch_size", f"must be {least} or more for {method}")
    multiplier = _or_auto(asked.learning_rate_multiplier, 1.0)
    beta = _or_auto(asked.beta, DEFAULT_BETA) if isinstance(asked, Preference) else None
    return Resolved(
        trainer_type=trainer,
        epochs=_or_auto(asked.n_epochs, auto_epochs(trainer, sizing, batch_size=batch_size)),
        batch_size=batch_size,
        learning_rate=learning_rate(trainer, lora, sizing, multiplier=multiplier),
        beta=beta,
        sampling=sampling(asked) if isinstance(asked, Reinforcement) else None,
    )


def share_of(
    resolved: Resolved, hyperparameters: Mapping[str, Any], *, method: str, processes: int
) -> int:
    """Returns each process's part of a batch; raises InvalidConfig if it has none.

    What "auto" makes is rounded down to what can be shared out.
    """
    least = least_pass(resolved.trainer_type)
    asked = hyperparameters.get("batch_size")
    share, rest = divmod(resolved.batch_size, processes)
    if asked not in (None, "auto") and (rest or share < least):
        raise InvalidConfig(
            f"{methods.hyperparameters_of(method)}.batch_size",
            f"must be a multiple of {processes}, and {least * processes} or more: {processes} "
            "processes share each batch",
        )
    return max(least, share)


def numbers(
    method: str, hyperparameters: Mapping[str, Any], *, sizing: Sizing, nodes: int
) -> dict[str, Any]:
    """Returns OpenAI's hyperparameters of a job with no "auto" left; raises InvalidConfig."""
    resolved = resolve(method, hyperparameters, lora=True, sizing=sizing)
    processes = nodes * sizing.processes
    share = share_of(resolved, hyperparameters, method=method, processes=processes)
    shown: dict[str, Any] = {
        "n_epochs": resolved.epochs,
        "batch_size": share * processes,
        "learning_rate_multiplier": _or_auto(hyperparameters.get("learning_rate_multiplier"), 1.0),
    }
    if resolved.beta is not None:
        shown["beta"] = resolved.beta
    if (sampled := resolved.sampling) is not None:
        shown |= {
            "compute_multiplier": sampled.generations / GENERATIONS,
            "eval_interval": sampled.eval_steps or ceil(sizing.examples / shown["batch_size"]),
            "eval_samples": sampled.eval_generations or sampled.generations,
            "reasoning_effort": "default",
        }
    return shown


def unresolved(method: str, hyperparameters: Mapping[str, Any]) -> dict[str, Any]:
    """The hyperparameters of the request, with "auto" for each that it leaves out."""
    kind: type[Struct] = Supervised
    if method in methods.GRADED:
        kind = Reinforcement
    elif method == "dpo":
        kind = Preference
    autos = {name: "auto" for name in kind.__struct_fields__ if name != "reasoning_effort"}
    return autos | {name: value for name, value in hyperparameters.items() if value is not None}


def auto_batch_size(sizing: Sizing) -> int:
    """Returns the batch size for "auto"."""
    wanted = max(1, min(16, sizing.examples // 16))
    return 1 << (wanted.bit_length() - 1)


def auto_epochs(trainer: TrainerType, sizing: Sizing, *, batch_size: int) -> int:
    """Returns the passes over the file for "auto"."""
    # A preference is soon learned, and more steps take the model apart.
    teaches = trainer is TrainerType.SFT and sizing.model_bytes < SMALL_MODEL_BYTES
    least_steps = 200 if teaches else 50
    enough = ceil(least_steps * batch_size / sizing.examples)
    affordable = max(1, round(MAX_AUTO_EXAMPLES / sizing.examples))
    return min(max(3, enough), affordable, MAX_AUTO_EPOCHS)


def least_pass(trainer: TrainerType) -> int:
    """The least number of examples in a forward pass."""
    return _LEAST_PASS.get(trainer, 1)


def examples_per_pass(sizing: Sizing, *, batch_size: int, least: int = 1) -> int:
    """Returns the largest part of a batch that divides it and fits one forward pass.

    It is `least` or more, whether that fits or not; a batch is no smaller than `least`.
    """
    most = next((size for limit, size in _PASS_SIZES if sizing.model_bytes < limit), 1)
    parts = [size for size in range(least, batch_size + 1) if batch_size % size == 0]
    return max((size for size in parts if size <= most), default=parts[0])


def learning_rate(trainer: TrainerType, lora: bool, sizing: Sizing, *, multiplier: float) -> float:
    """Returns the rate of "auto", times the multiplier; at most 1."""
    at_reference, exponent = _RATES[trainer, lora]
    auto = at_reference * (REFERENCE_BYTES / sizing.model_bytes) ** exponent
    rate = min(auto, MAX_LEARNING_RATE) * multiplier
    # A step of more than 1 trains nothing; three digits keep the arguments readable.
    return float(f"{min(rate, 1.0):.3g}")


def _or_auto(asked: V | Auto, auto: V) -> V:
    return auto if asked is None or asked == "auto" else asked
