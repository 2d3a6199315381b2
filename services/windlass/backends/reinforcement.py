"""OpenAI's hyperparameters of the reinforcement method, and what "auto" means of them.

* `batch_size`: prompts in a step, by the rule of every method.
* `compute_multiplier`: 1, which is eight answers to each prompt.
* `eval_interval`: none; the validation file is gone through after each pass over the other one.
* `eval_samples`: as many answers to a prompt as in training.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from windlass.backends.backend import InvalidConfig
from windlass.backends.bounds import MAX_GENERATIONS, BatchSize, Epochs, EvalSteps
from windlass.backends.typed import decode

Auto = Literal["auto"] | None
Multiplier = Annotated[float, Meta(gt=0, le=1000)]
GENERATIONS = 8


class Reinforcement(Struct, frozen=True, forbid_unknown_fields=True):
    """OpenAI's hyperparameters of the reinforcement method."""

    n_epochs: Auto | Epochs = "auto"
    batch_size: Auto | BatchSize = "auto"
    learning_rate_multiplier: Auto | Multiplier = "auto"
    compute_multiplier: Auto | Annotated[float, Meta(gt=0, le=8)] = "auto"
    eval_interval: Auto | EvalSteps = "auto"
    eval_samples: Auto | Annotated[int, Meta(ge=2, le=MAX_GENERATIONS)] = "auto"
    reasoning_effort: Literal["default", "low", "medium", "high"] | None = None


@dataclass(frozen=True)
class Sampling:
    """Answers per prompt in training and in evaluations, and the steps between evaluations.

    None leaves evaluations to the ends of epochs, and their answers as many as in training.
    """

    generations: int
    eval_generations: int | None = None
    eval_steps: int | None = None

    def settings(self) -> dict[str, int | None]:
        """Returns it by the names of a job's document."""
        return {
            "num_generations": self.generations,
            "num_generations_eval": self.eval_generations,
            "eval_steps": self.eval_steps,
        }


def decode_reinforcement(hyperparameters: Mapping[str, Any], *, at: str) -> Reinforcement:
    """Decodes the hyperparameters found at path `at`; raises InvalidConfig."""
    asked = decode(hyperparameters, Reinforcement, at=at)
    if asked.reasoning_effort not in (None, "default"):
        raise InvalidConfig(
            f"{at}.reasoning_effort",
            "is not supported; leave it out or set 'default'",
        )
    return asked


def sampling(asked: Reinforcement) -> Sampling:
    """Resolves what is asked for of sampling."""
    multiplier = asked.compute_multiplier
    multiplier = 1.0 if multiplier in (None, "auto") else float(multiplier)
    return Sampling(
        generations=max(2, round(GENERATIONS * multiplier)),
        eval_generations=None if asked.eval_samples == "auto" else asked.eval_samples,
        eval_steps=None if asked.eval_interval == "auto" else asked.eval_interval,
    )
