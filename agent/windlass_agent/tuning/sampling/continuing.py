"""One prompt on its way: read once, then continued some tokens at a time."""

from collections.abc import Callable
from dataclasses import dataclass, field

import torch

from windlass_agent.tuning.network.base import BaseNetwork
from windlass_agent.tuning.network.layout import Segment
from windlass_agent.tuning.requests.prompts import (
    Continuation,
    Continuations,
    PromptRequest,
    Ranked,
)
from windlass_agent.tuning.requests.refusal import TuningRefused
from windlass_agent.tuning.sampling.choosing import choose, ranked

Decode = Callable[[list[int]], str]
# PackedRows of logits at a time, since each is as long as the vocabulary.
_ROWS = 512


@dataclass
class _GrowingRow:
    """A continuation that grows."""

    generator: torch.Generator
    tokens: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    ranked: list[Ranked] = field(default_factory=list)
    stopped: bool = False


class PromptWork:
    """Continuations of one prompt; each `advance` costs a bounded number of tokens."""

    def __init__(
        self,
        base: BaseNetwork,
        request: PromptRequest,
        segment: Segment | None,
        decode: Decode | None,
    ):
        self._base = base
        self._request = request
        self._segment = segment
        self._decode = decode
        self._cache = base.new_cache()
        self._rows = [
            _GrowingRow(torch.Generator().manual_seed(request.seed + place))
            for place in range(request.count)
        ]
        self._growing = list(self._rows) if request.max_tokens else []
        self._next: torch.Tensor | None = None
        self._prompt_logprobs: list[float] = []
        self._ranked_prompt: list[Ranked] = []

    def advance(self, steps: int) -> int:
        """Reads the prompt, or adds up to `steps` tokens to each row; returns the tokens done."""
        with torch.no_grad():
            return self._advance(steps)

    def _advance(self, steps: int) -> int:
        if self._next is None:
            self._read()
            return len(self._request.tokens)
        done = 0
        for _ in range(steps):
            if not self._growing:
                break
            done += len(self._growing)
            self._grow()
        return done

    def result(self) -> Continuations | None:
        """Returns what was asked for once it is complete."""
        if self._next is None or self._growing:
            return None
        return Continuations(
            sequences=[
                Continuation(
                    tokens=row.tokens,
                    logprobs=row.logprobs,
                    ranked=row.ranked,
                    stopped=row.stopped,
                )
                for row in self._rows
            ],
            prompt_logprobs=self._prompt_logprobs,
            ranked_prompt=self._ranked_prompt,
        )

    def _read(self) -> None:
        tokens = torch.from_numpy(self._request.tokens).to(self._base.device)
        states = self._base.extend(tokens[None], self._cache, self._segment)[0]
        if self._request.prompt_logprobs or self._request.ranked_prompt:
            self._report(states, tokens)
        self._next = _checked(self._base.logits(states[-1:], self._segment))
        count = len(self._growing)
        if count > 1:
            self._next = self._next.expand(count, -1)
            self._cache.batch_repeat_interleave(count)

    def _report(self, states: torch.Tensor, tokens: torch.Tensor) -> None:
        for start in range(0, len(tokens) - 1, _ROWS):
            end = min(start + _ROWS, len(tokens) - 1)
            logprobs = self._base.logits(states[start:end], self._segment).log_softmax(-1)
            wanted = tokens[start + 1 : end + 1, None]
            self._prompt_logprobs += _checked(logprobs).gather(-1, wanted)[:, 0].tolist()
            self._ranked_prompt += ranked(logprobs, self._request.ranked_prompt)

    def _grow(self) -> None:
        assert self._next is not None  # noqa: S101  # the prompt was read
        rows, logprobs = self._growing, self._next.log_softmax(-1)
        tokens = choose(self._next, self._request, [row.generator for row in rows])
        alternatives = ranked(logprobs, self._request.ranked_tokens)
        for place, (row, token) in enumerate(zip(rows, tokens, strict=True)):
            row.tokens.append(token)
            row.logprobs.append(float(logprobs[place, token]))
            row.ranked += alternatives[place : place + 1]
            row.stopped = self._stops(row)
        kept = [
            place
            for place, row in enumerate(rows)
            if not row.stopped and len(row.tokens) < self._request.max_tokens
        ]
        self._growing = [rows[place] for place in kept]
        if not kept:
            return
        device = self._base.device
        if len(kept) < len(rows):
            self._cache.batch_select_indices(torch.tensor(kept, device=device))
        new = torch.tensor([[tokens[place]] for place in kept], device=device)
        states = self._base.extend(new, self._cache, self._segment)
        self._next = _checked(self._base.logits(states[:, -1], self._segment))

    def _stops(self, row: _GrowingRow) -> bool:
        if row.tokens[-1] in self._request.stop_tokens or row.tokens[-1] in self._base.ends:
            return True
        if self._decode is None or not self._request.stop_strings:
            return False
        # A character has four bytes at most, and a token one at least.
        tail = row.tokens[-4 * max(map(len, self._request.stop_strings)) :]
        text = self._decode(tail)
        return any(stop in text for stop in self._request.stop_strings)


def _checked(values: torch.Tensor) -> torch.Tensor:
    if bool(values.isnan().any()):
        raise TuningRefused("non_finite_logits", "the weights give logits that are no number")
    return values
