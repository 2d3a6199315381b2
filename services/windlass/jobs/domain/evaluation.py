"""Evaluations of fine-tuned models: what is asked for, and what came of it. Pure."""

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """A comparison that a job is to make once it is trained."""

    file: str
    grader: dict[str, Any] = field(default_factory=dict)
    max_examples: int
    max_completion_tokens: int
    temperature: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationScore:
    """Mean reward of a model's answers; the reward of an `ungraded` one is 0."""

    mean_reward: float
    ungraded: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationResult:
    """A comparison by example: a win is a higher reward of the fine-tuned model's answer."""

    examples: int
    base: EvaluationScore
    fine_tuned: EvaluationScore
    wins: int
    ties: int
    losses: int
