"""The methods that a job may ask for, and what each needs and makes.

OpenAI's are chosen by `method.type`, the others by `extra_body.windlass.method`. A backend says
itself which of them it has.
"""

from collections.abc import Mapping, Sequence
from enum import StrEnum

from windlass.backends.backend import DatasetFormat, InvalidConfig

OPENAI = ("supervised", "dpo", "reinforcement")
OURS = ("kto", "orpo", "reward", "distillation")
# Ways of OpenAI's reinforcement: what `windlass.method` may name beside it.
ALGORITHMS = {"grpo": "reinforcement", "rloo": "rloo"}
# What a grader rewards.
GRADED = frozenset(ALGORITHMS.values())
# What makes a model that scores answers, and writes none.
SCORING = frozenset({"reward"})
READS: Mapping[str, DatasetFormat] = {
    "supervised": "chat",
    "dpo": "preference",
    "kto": "unpaired_preference",
    "orpo": "preference",
    "reward": "preference",
    "distillation": "prompt",
    "reinforcement": "reinforcement",
    "grpo": "reinforcement",
    "rloo": "reinforcement",
}


class TrainerType(StrEnum):
    """The kinds of training, by the names of TRL's trainers."""

    SFT = "sft"
    DPO = "dpo"
    KTO = "kto"
    ORPO = "orpo"
    REWARD = "reward"
    DISTILLATION = "distillation"
    GRPO = "grpo"
    RLOO = "rloo"


# Those that learn from the rewards of their own answers.
ONLINE = (TrainerType.GRPO, TrainerType.RLOO)
NO_PPO = "PPO is not supported; GRPO and RLOO also learn from rewards, without a value model"


def choose(openai: str, ours: object) -> str:
    """Returns the method of a request, `supervised` for none; raises InvalidConfig."""
    if ours is None:
        if openai and openai not in OPENAI:
            raise InvalidConfig("method.type", _one_of(OPENAI, openai))
        return openai or OPENAI[0]
    if isinstance(ours, str) and ours in ALGORITHMS:
        if openai != "reinforcement":
            raise InvalidConfig(
                "windlass.method", f"'{ours}' goes with method.type 'reinforcement' and its grader"
            )
        return ALGORITHMS[ours]
    if openai:
        raise InvalidConfig("windlass.method", "and method cannot both be given")
    if ours == "ppo":
        raise InvalidConfig("windlass.method", NO_PPO)
    if ours in OPENAI:
        raise InvalidConfig("windlass.method", f"is not for '{ours}': set method.type")
    if ours not in OURS:
        raise InvalidConfig("windlass.method", _one_of(OURS, str(ours)))
    return str(ours)


def _one_of(known: Sequence[str], given: str) -> str:
    # Loaded here, since the SDK is installed without what compares names.
    from windlass.core.suggestions import closest

    meant = closest(given, known)
    return f"must be one of {', '.join(known)}" + (f" (did you mean {meant!r}?)" if meant else "")


def field_of(method: str) -> str:
    """Returns the request's field that chose the method."""
    return "windlass.method" if method in OURS or method in ALGORITHMS else "method.type"


def type_of(method: str) -> str:
    """OpenAI's `method.type` for a job of the method."""
    return "reinforcement" if method in GRADED else method


def hyperparameters_of(method: str) -> str:
    """Returns the request's field with the method's hyperparameters."""
    return "hyperparameters" if method in OURS else f"method.{type_of(method)}.hyperparameters"
