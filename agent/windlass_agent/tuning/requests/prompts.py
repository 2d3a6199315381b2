"""Prompts to continue, and their continuations."""

import math
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt

from windlass_agent.tuning.requests.limits import TuningLimits
from windlass_agent.tuning.requests.refusal import TuningRefused

Ranked = list[tuple[int, float]]
"""The likeliest tokens of a place, the likeliest first."""


@dataclass(frozen=True, kw_only=True)
class PromptRequest:
    """A wish for continuations of a prompt, by an exported adapter or the base (None)."""

    tokens: npt.NDArray[np.int64]
    adapter: Path | None = None
    project: str = ""
    count: int = 1
    max_tokens: int = 16
    temperature: float = 1.0
    top_k: int = -1
    top_p: float = 1.0
    seed: int = 0
    stop_tokens: frozenset[int] = frozenset()
    stop_strings: tuple[str, ...] = ()
    prompt_logprobs: bool = False
    ranked_prompt: int = 0
    ranked_tokens: int = 0


@dataclass(frozen=True, kw_only=True)
class Continuation:
    """Tokens, which end with those that completed a stop if it was `stopped`."""

    tokens: list[int]
    logprobs: list[float]
    ranked: list[Ranked]
    stopped: bool


@dataclass(frozen=True, kw_only=True)
class Continuations:
    """Continuations of one prompt, and what was asked of the prompt itself, from its 2nd token."""

    sequences: list[Continuation]
    prompt_logprobs: list[float]
    ranked_prompt: list[Ranked]
    device_seconds: float = field(default=0.0, compare=False)


def check_prompt(
    request: PromptRequest, vocabulary: int, context: int, limits: TuningLimits
) -> None:
    """Raises TuningRefused for what cannot be sampled."""
    tokens = request.tokens
    if tokens.dtype != np.int64 or tokens.ndim != 1 or not len(tokens):
        raise TuningRefused("wrong_shape", "a prompt is a list of int64 tokens")
    if not (int(tokens.min()) >= 0 and int(tokens.max()) < vocabulary):
        raise TuningRefused("unknown_token", f"the prompt has none of the {vocabulary} tokens")
    if len(tokens) + request.max_tokens > context:
        message = f"{len(tokens)} tokens and {request.max_tokens} new ones, where {context} fit"
        raise TuningRefused("too_long", message)
    bounds = {
        "count": (1, request.count, limits.samples),
        "max_tokens": (0, request.max_tokens, limits.sampled_tokens),
        "ranked logprobs": (
            0,
            max(request.ranked_prompt, request.ranked_tokens),
            min(limits.ranked_logprobs, vocabulary),
        ),
        "stops": (0, len(request.stop_tokens) + len(request.stop_strings), limits.stops),
    }
    for name, (least, value, most) in bounds.items():
        if not least <= value <= most:
            raise TuningRefused("out_of_bounds", f"{name} is {value}, not {least} to {most}")
    if not (math.isfinite(request.temperature) and request.temperature >= 0):
        raise TuningRefused("invalid_setting", "temperature is a number from 0 on")
    if not 0 <= request.seed < 2**63:
        raise TuningRefused("invalid_setting", "the seed is from 0 on, of 63 bits")
    if not 0 < request.top_p <= 1 or (request.top_k != -1 and request.top_k < 1):
        raise TuningRefused("invalid_setting", "top_p is above 0 up to 1, top_k from 1 on or -1")
    if any(not 0 < len(stop) <= limits.stop_length for stop in request.stop_strings):
        raise TuningRefused("out_of_bounds", f"a stop has 1 to {limits.stop_length} characters")
