"""A key-value cache whose rows can be put together and taken apart."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from transformers.cache_utils import Cache, CacheLayerMixin

# Columns kept free, so that most tokens are written in place instead of copying all.
ROOM = 64


class SlabLayer(CacheLayerMixin):  # type: ignore[misc]  # mypy skips transformers
    """One layer's keys and values in a slab that grows ahead of what it holds."""

    is_sliding = False
    length: int = 0

    @classmethod
    def holding(cls, keys: torch.Tensor, values: torch.Tensor, length: int) -> "SlabLayer":
        """A layer over ready slabs, of which `length` columns are filled."""
        layer = cls()
        layer.lazy_initialization(keys, values)
        layer.keys, layer.values, layer.length = keys, values, length
        return layer

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        """Takes on shape, type and device of the first states."""
        self.dtype, self.device = key_states.dtype, key_states.device
        self.keys = _columns(key_states, 0, key_states.shape[-2] + ROOM)
        self.values = _columns(value_states, 0, value_states.shape[-2] + ROOM)
        self.is_initialized = True

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Appends columns; returns views of everything held."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        start, end = self.length, self.length + key_states.shape[-2]
        if end > self.keys.shape[-2]:
            capacity = max(end + ROOM, end * 3 // 2)
            self.keys = _columns(self.keys, start, capacity)
            self.values = _columns(self.values, start, capacity)
        self.keys[:, :, start:end] = key_states
        self.values[:, :, start:end] = value_states
        self.length = end
        return self.keys[:, :, :end], self.values[:, :, :end]

    def get_seq_length(self) -> int:
        """Columns filled."""
        return self.length

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """Columns that the next `query_length` tokens attend to, and their offset."""
        return self.length + query_length, 0

    def get_max_length(self) -> int:
        """-1: grows without bound."""
        return -1


def _columns(source: torch.Tensor, filled: int, capacity: int) -> torch.Tensor:
    rows, heads, _, width = source.shape
    slab = source.new_zeros(rows, heads, capacity, width)
    slab[:, :, :filled] = source[:, :, :filled]
    return slab


def new_cache() -> Cache:
    """An empty cache; every layer keeps all columns, sliding ones are cut by their mask."""
    return Cache(layer_class_to_replicate=SlabLayer)


@dataclass(frozen=True)
class CacheSlice:
    """Rows of a cache, without their first `start` columns."""

    cache: Cache
    rows: tuple[int, ...]
    start: int = 0

    @property
    def width(self) -> int:
        """Columns that it contributes."""
        return int(self.cache.get_seq_length()) - self.start


def stack(parts: Sequence[CacheSlice]) -> Cache:
    """Returns one cache with the rows of all parts, aligned at the right; zeros fill the left.

    Zeros, not garbage: a masked column still meets its value, and 0 * NaN is NaN.
    """
    width = max(part.width for part in parts)
    layers = [_stack_layer(parts, index, width) for index in range(len(parts[0].cache.layers))]
    return Cache(layers=layers)


def _stack_layer(parts: Sequence[CacheSlice], index: int, width: int) -> SlabLayer:
    def gather(name: str) -> torch.Tensor:
        first = getattr(parts[0].cache.layers[index], name)
        rows = sum(len(part.rows) for part in parts)
        slab = first.new_zeros(rows, first.shape[1], width + ROOM, first.shape[3])
        row = 0
        for part in parts:
            source = getattr(part.cache.layers[index], name)[list(part.rows)]
            slab[row : row + len(part.rows), :, width - part.width : width] = source[
                :, :, part.start : part.start + part.width
            ]
            row += len(part.rows)
        return slab

    return SlabLayer.holding(gather("keys"), gather("values"), width)
