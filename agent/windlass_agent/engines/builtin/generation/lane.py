"""Sequences of one adapter, decoding together."""

from dataclasses import dataclass, replace

import torch
from transformers.cache_utils import Cache

from windlass_agent.engines.builtin.generation.cache import CacheSlice, new_cache, stack
from windlass_agent.engines.builtin.generation.model import LoadedModel
from windlass_agent.engines.builtin.generation.sampling import choose, score
from windlass_agent.engines.builtin.generation.sequence import Sequence, StepOutput, Token


class Prefill:
    """A prompt on its way into a cache, some tokens at a time, alone and so without padding."""

    def __init__(self, model: LoadedModel, sequence: Sequence):
        self._model = model
        self.sequence = sequence
        self.cache = new_cache()
        self._done = 0
        self._scored: list[Token] = [Token(sequence.prompt[0])]

    def advance(self, budget: int) -> tuple[int, StepOutput | None]:
        """Runs up to `budget` tokens; returns their number, and the first piece after the last."""
        prompt, start = self.sequence.prompt, self._done
        end = min(start + budget, len(prompt))
        ids = torch.tensor([prompt[start:end]], device=self._model.device)
        positions = torch.arange(start, end, device=self._model.device).unsqueeze(0)
        wanted = self.sequence.params.prompt_logprobs
        logits = self._model.logits(ids, positions, cache=self.cache, keep=0 if wanted else 1)[0]
        if wanted:
            following = prompt[start + 1 : end + 1]
            top = self.sequence.params.prompt_top
            top = self.sequence.params.logprobs or 0 if top is None else top
            self._scored += score(logits[: len(following)], following, top=top)
        self._done = end
        return end - start, self._first(logits) if end == len(prompt) else None

    def _first(self, logits: torch.Tensor) -> StepOutput:
        prompt = tuple(self._scored) if self.sequence.params.prompt_logprobs else ()
        if self.sequence.params.max_tokens == 0:
            self.sequence.finished = True
            return StepOutput(text="", finish_reason="length", prompt=prompt)
        piece = self.sequence.accept(choose(logits[-1:], [self.sequence])[0])
        return replace(piece, prompt=prompt)


@dataclass(slots=True)
class _Row:
    sequence: Sequence
    pad: int


class Lane:
    """A batch over one padded cache; sequences join and leave between two steps."""

    def __init__(self, model: LoadedModel, adapter: str | None):
        self._model = model
        self.adapter = adapter
        self._rows: list[_Row] = []
        self._cache: Cache | None = None
        self._joining: list[Prefill] = []

    @property
    def sequences(self) -> list[Sequence]:
        """Everything in it, joining or decoding."""
        return [row.sequence for row in self._rows] + [p.sequence for p in self._joining]

    def join(self, prefill: Prefill) -> None:
        """Adds a sequence whose prompt is cached and whose first token is chosen."""
        self._joining.append(prefill)

    def step(self) -> list[tuple[Sequence, StepOutput]]:
        """Generates one token for every sequence, after it removes those that have ended."""
        self._rebatch()
        if self._cache is None:
            return []
        length = self._cache.get_seq_length()
        device = self._model.device
        last = torch.tensor([[row.sequence.generated[-1]] for row in self._rows], device=device)
        pads = torch.tensor([row.pad for row in self._rows], device=device).unsqueeze(1)
        padded = any(row.pad for row in self._rows)
        mask = torch.arange(length + 1, device=device) >= pads if padded else None
        logits = self._model.logits(last, length - pads, cache=self._cache, mask=mask)[:, -1]
        sequences = [row.sequence for row in self._rows]
        chosen = choose(logits, sequences)
        return [(one, one.accept(token)) for one, token in zip(sequences, chosen, strict=True)]

    def _rebatch(self) -> None:
        """Rebuilds the cache when its rows change; the columns no row needs are cut."""
        stays = [index for index, row in enumerate(self._rows) if not row.sequence.over]
        joining = [prefill for prefill in self._joining if not prefill.sequence.over]
        self._joining = []
        if len(stays) == len(self._rows) and not joining:
            return
        parts, lengths = [], []
        if stays and self._cache is not None:
            cut = min(self._rows[index].pad for index in stays)
            width = self._cache.get_seq_length()
            parts.append(CacheSlice(self._cache, tuple(stays), cut))
            lengths += [width - self._rows[index].pad for index in stays]
        for prefill in joining:
            parts.append(CacheSlice(prefill.cache, (0,)))
            lengths.append(prefill.cache.get_seq_length())
        sequences = [self._rows[index].sequence for index in stays]
        sequences += [prefill.sequence for prefill in joining]
        self._cache = stack(parts) if parts else None
        self._rows = [
            _Row(one, max(lengths) - length) for one, length in zip(sequences, lengths, strict=True)
        ]
