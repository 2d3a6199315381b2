"""Datums as Tinker's clients write them in JSON."""

from itertools import chain
from typing import Annotated, Literal

import msgspec


class DatumChunk(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Token ids, which are a part of a sequence."""

    tokens: tuple[int, ...]
    type: Literal["encoded_text"] = "encoded_text"


class ModelInput(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A sequence, in parts."""

    chunks: tuple[DatumChunk, ...]


class _DatumTensor(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="dtype"):
    shape: Annotated[tuple[int, ...], msgspec.Meta(max_length=4)] | None = None


class Int64Tensor(_DatumTensor, frozen=True, tag="int64", kw_only=True):
    """Whole numbers."""

    data: tuple[int, ...]


class Float32Tensor(_DatumTensor, frozen=True, tag="float32", kw_only=True):
    """Numbers."""

    data: tuple[float, ...]


DatumTensor = Int64Tensor | Float32Tensor


class TinkerDatum(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A sequence; position i of each input is about what follows its i-th token."""

    model_input: ModelInput
    loss_fn_inputs: dict[str, DatumTensor]

    @property
    def tokens(self) -> tuple[int, ...]:
        """Token ids of all chunks."""
        return tuple(chain.from_iterable(one.tokens for one in self.model_input.chunks))

    @property
    def length(self) -> int:
        """Token ids of all chunks, counted."""
        return sum(len(one.tokens) for one in self.model_input.chunks)


def shape_of(tensor: DatumTensor) -> tuple[int, ...]:
    """Returns the shape of a tensor; without one it is a row."""
    return (len(tensor.data),) if tensor.shape is None else tensor.shape
