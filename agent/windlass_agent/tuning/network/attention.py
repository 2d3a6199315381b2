"""Attention over sequences that lie one behind the other, without padding."""

from collections.abc import Sequence
from typing import Any

import torch
from transformers import AttentionInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward

NAME = "windlass_packed"
Span = tuple[int, int]


def attend(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    _: torch.Tensor | None,
    spans: Sequence[Span] | None = None,
    sliding_window: int | None = None,
    **settings: Any,
) -> tuple[torch.Tensor, None]:
    """Lets each span attend to itself alone, by the same kernel and shapes as on its own."""

    if query.shape[2] == 1 and spans is None:
        output = sdpa_attention_forward(module, query, key, value, None, **settings)[0]
        return output, None
    lengths = [end - start for start, end in spans or ((0, query.shape[2]),)]
    parts = zip(*(tensor.split(lengths, dim=2) for tensor in (query, key, value)), strict=True)
    pieces = [
        sdpa_attention_forward(
            module, *part, _window(part[0].shape[2], sliding_window, query.device), **settings
        )[0]
        for part in parts
    ]
    return (pieces[0] if len(pieces) == 1 else torch.cat(pieces, dim=1)), None


def _window(length: int, window: int | None, device: torch.device) -> torch.Tensor | None:
    """The mask of a window; None where all of a sequence is within it."""
    if window is None or length <= window:
        return None
    places = torch.arange(length, device=device)
    distance = places[:, None] - places[None, :]
    return ((distance >= 0) & (distance < window))[None, None]


AttentionInterface.register(NAME, attend)
