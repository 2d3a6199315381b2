"""One answer in the making."""

import asyncio
import time
from collections import Counter
from dataclasses import dataclass, field

import torch

from windlass.inference_api.requests import SamplingParams
from windlass_agent.engines.builtin.constraints import Constraint
from windlass_agent.engines.builtin.text.detokenize import Detokenizer, StopFilter


@dataclass(frozen=True, slots=True)
class Token:
    """A chosen token; log-probabilities are the model's own, before any parameter."""

    id: int
    logprob: float | None = None
    top: tuple[tuple[int, float], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class StepOutput:
    """Output of one generation step."""

    text: str
    token: Token | None = None
    """None for an end-of-sequence token, which is counted but is no text."""
    ending: Token | None = None
    """The token that ended the sequence and is no text."""
    finish_reason: str | None = None
    prompt: tuple[Token, ...] = ()
    """The prompt's tokens with their log-probabilities, once, when asked for."""


@dataclass(slots=True, kw_only=True, eq=False)
class Sequence:
    """A prompt, its parameters and what was generated; `cancelled` may be set by any thread."""

    prompt: list[int]
    params: SamplingParams
    index: int
    adapter: str | None
    eos: frozenset[int]
    detokenizer: Detokenizer
    # Not bounded by itself: it holds at most `max_tokens` pieces.
    sink: "asyncio.Queue[tuple[Sequence, StepOutput | Exception]]"
    generator: torch.Generator
    constraint: Constraint | None = None
    # Of the request that it is a part of; others may have the same.
    request_id: str = ""
    generated: list[int] = field(default_factory=list)
    counts: Counter[int] = field(default_factory=Counter)
    filter: StopFilter = field(init=False)
    cancelled: bool = False
    finished: bool = False
    submitted_at: float = field(default_factory=time.monotonic)
    # When the last token came; 0 before the first.
    token_at: float = 0.0

    def __post_init__(self) -> None:
        self.filter = StopFilter(self.params.stop)

    @property
    def over(self) -> bool:
        """True if no further token is wanted."""
        return self.finished or self.cancelled

    def accept(self, token: Token) -> StepOutput:
        """Takes the next token; sets `finished` when it is the last."""
        self.generated.append(token.id)
        self.counts[token.id] += 1
        ends = token.id in self.eos and not self.params.ignore_eos
        if ends or token.id in self.params.stop_tokens:
            self.finished = True
            return StepOutput(text=self.filter.flush(), ending=token, finish_reason="stop")
        text = self.filter.push(self.detokenizer.push(token.id))
        reason = None
        if self.constraint is not None:
            self.constraint.accept(token.id)
        if self.filter.stopped:
            reason = "stop"
        elif self.constraint is not None and self.constraint.complete:
            text, reason = text + self.filter.flush(), "stop"
        elif len(self.generated) >= self.params.max_tokens:
            text, reason = text + self.filter.flush(), "length"
        self.finished = reason is not None
        return StepOutput(text=text, token=token, finish_reason=reason)
