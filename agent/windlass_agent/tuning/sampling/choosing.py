"""Choice of the next token."""

from collections.abc import Sequence

import torch

from windlass_agent.tuning.requests.prompts import PromptRequest, Ranked


def choose(
    logits: torch.Tensor, request: PromptRequest, generators: Sequence[torch.Generator]
) -> list[int]:
    """The next token of each row, drawn by the row's own generator."""
    if request.temperature == 0:
        return [int(token) for token in logits.argmax(-1)]
    # The greatest becomes 0 first, so that no temperature is too low to divide by.
    scaled = (logits - logits.max(-1, keepdim=True).values) / request.temperature
    if 0 < request.top_k < scaled.shape[-1]:
        least = scaled.topk(request.top_k).values[:, -1:]
        scaled = scaled.masked_fill(scaled < least, -torch.inf)
    chances = scaled.softmax(-1).cpu()
    if request.top_p < 1:
        ordered, order = chances.sort(descending=True)
        beyond = ordered.cumsum(-1) - ordered > request.top_p
        chances = chances.scatter(-1, order, ordered.masked_fill(beyond, 0.0))
    return [
        int(torch.multinomial(row, 1, generator=generator))
        for row, generator in zip(chances, generators, strict=True)
    ]


def ranked(logprobs: torch.Tensor, count: int) -> list[Ranked]:
    """The likeliest tokens of each row."""
    if not count:
        return []
    best = logprobs.topk(count)
    return [
        list(zip(tokens, values, strict=True))
        for tokens, values in zip(best.indices.tolist(), best.values.tolist(), strict=True)
    ]
