"""Tensors as bytes that are read and changed in place."""

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol, TypeAlias

import numpy as np
import numpy.typing as npt
import xxhash

from windlass.weight_versions.manifest import CHUNK_BYTES

Octets: TypeAlias = npt.NDArray[np.uint8]


class TensorBytes(Protocol):
    """One tensor's memory, from its first byte to its last; `dtype` is safetensors' name."""

    @property
    def dtype(self) -> str:
        """The type of its elements."""

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape."""

    @property
    def nbytes(self) -> int:
        """Bytes that it has."""

    def read(self, start: int, stop: int) -> Octets:
        """The bytes from `start` to before `stop`; perhaps its own memory."""

    def write(self, start: int, content: Octets) -> None:
        """Replaces bytes from `start` on."""

    def xor(self, start: int, difference: Octets) -> None:
        """Changes the bits that are set in `difference`, from byte `start` on."""


Weights: TypeAlias = Mapping[str, TensorBytes]


@dataclass(frozen=True)
class ArrayBytes:
    """The memory of a tensor in this machine, as a flat array over it."""

    octets: Octets
    dtype: str
    shape: tuple[int, ...]

    @property
    def nbytes(self) -> int:
        """Bytes that it has."""
        return self.octets.nbytes

    def read(self, start: int, stop: int) -> Octets:
        """The memory itself from `start` to before `stop`."""
        return self.octets[start:stop]

    def write(self, start: int, content: Octets) -> None:
        """Replaces bytes from `start` on."""
        self.octets[start : start + content.nbytes] = content

    def xor(self, start: int, difference: Octets) -> None:
        """Changes the bits that are set in `difference`, from byte `start` on."""
        target = self.octets[start : start + difference.nbytes]
        if (target.ctypes.data | difference.ctypes.data | target.nbytes) % 8 == 0:
            # Wide words: four times as fast as single bytes on most machines.
            wide = target.view(np.uint64)
            np.bitwise_xor(wide, difference.view(np.uint64), out=wide)
        else:
            np.bitwise_xor(target, difference, out=target)


def chunks(tensor: TensorBytes) -> Iterator[tuple[int, Octets]]:
    """Yields where each chunk of a tensor begins, and its bytes."""
    for start in range(0, tensor.nbytes, CHUNK_BYTES):
        yield start, tensor.read(start, min(start + CHUNK_BYTES, tensor.nbytes))


def tensor_digest(tensor: TensorBytes) -> str:
    """XXH3 of 128 bits: it finds accidents at the speed of memory, and no attacker."""
    hasher = xxhash.xxh3_128()
    for _, content in chunks(tensor):
        hasher.update(content.data)
    return hasher.hexdigest()


def digest_of(weights: Weights) -> str:
    """The digest that a manifest has of the same weights."""
    hasher = hashlib.sha256()
    for name in sorted(weights):
        tensor = weights[name]
        shape = ",".join(map(str, tensor.shape))
        line = f"{name}\0{tensor.dtype}\0{shape}\0{tensor_digest(tensor)}\n"
        hasher.update(line.encode())
    return hasher.hexdigest()
