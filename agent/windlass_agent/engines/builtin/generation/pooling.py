"""Vectors of texts, from the hidden states of a network."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import safe_open

from windlass.modelfiles.encoders.embedding import PLAIN, DenseLayer, Pooling

# The names that releases of sentence-transformers gave the weights of a layer.
_NAMES = ("linear.", "dense.", "")


@dataclass(frozen=True)
class Pooler:
    """Makes one vector of the hidden states of each text."""

    pooling: Pooling = PLAIN
    layers: tuple[torch.nn.Module, ...] = ()

    @classmethod
    def load(cls, folder: Path, pooling: Pooling, device: str, size: int) -> "Pooler":
        """Reads the layers that follow states of `size`; raises ValueError for a misfit."""
        layers = []
        for layer in pooling.layers:
            made, size = _layer(folder, layer, size)
            layers.append(made.to(device))
        return cls(pooling, tuple(layers))

    def __call__(self, hidden: torch.Tensor, mask: torch.Tensor) -> list[list[float]]:
        """Vectors of hidden states [texts, width, size] where the mask [texts, width] is 1."""
        vectors = self._pooled(hidden, mask)
        for layer in self.layers:
            vectors = layer(vectors)
        if self.pooling.normalize:
            vectors = torch.nn.functional.normalize(vectors, dim=-1)
        found: list[list[float]] = vectors.tolist()
        return found

    def _pooled(self, hidden: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        match self.pooling.mode:
            case "cls":
                return hidden[:, 0]
            case "last":
                rows = torch.arange(len(hidden), device=hidden.device)
                return hidden[rows, mask.sum(1) - 1]
            case _:
                weights = mask.unsqueeze(-1).float()
                return (hidden * weights).sum(1) / weights.sum(1)


def similarities(vectors: Sequence[Sequence[float]], query: Sequence[float]) -> list[float]:
    """The cosine of each vector with that of a query."""
    compared = torch.nn.functional.cosine_similarity(torch.tensor(vectors), torch.tensor([query]))
    found: list[float] = compared.tolist()
    return found


def _layer(folder: Path, layer: DenseLayer, size: int) -> tuple[torch.nn.Module, int]:
    """A layer on vectors of a size, and the size of those that it makes."""
    with safe_open(folder / layer.file, framework="pt") as tensors:
        names = set(tensors.keys())
        prefix = next((one for one in _NAMES if f"{one}weight" in names), None)
        if prefix is None or (layer.bias and f"{prefix}bias" not in names):
            raise ValueError(f"{layer.file} has not the weights of a layer")
        weight = tensors.get_tensor(f"{prefix}weight").float()
        bias = tensors.get_tensor(f"{prefix}bias").float() if layer.bias else None
    if weight.dim() != 2 or weight.shape[1] != size:
        raise ValueError(f"{layer.file} is {list(weight.shape)}; vectors have {size} numbers")
    if bias is not None and bias.shape != weight.shape[:1]:
        raise ValueError(f"{layer.file} has a bias of {list(bias.shape)}")
    made = weight.shape[0]
    linear = torch.nn.Linear(size, made, bias=layer.bias)
    linear.weight = torch.nn.Parameter(weight, requires_grad=False)
    if bias is not None:
        linear.bias = torch.nn.Parameter(bias, requires_grad=False)
    if layer.activation == "tanh":
        return torch.nn.Sequential(linear, torch.nn.Tanh()), made
    return linear, made
