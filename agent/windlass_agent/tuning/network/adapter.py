"""Low-rank matrices of one run."""

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch

from windlass_agent.tuning.network.layout import Pair
from windlass_agent.tuning.requests.operations import AdapterSpec, Target

DOWN, UP = "lora_A", "lora_B"
_SEEDS = 2**63 - 1


@dataclass(frozen=True)
class LayerShape:
    """A layer that can be adapted."""

    name: str
    target: Target
    inputs: int
    outputs: int


Tensors = dict[str, torch.Tensor]
"""Tensors of an adapter, or of what belongs to each (gradients, moments), by `LAYER.lora_A`."""


def first_values(spec: AdapterSpec, layers: Sequence[LayerShape]) -> Tensors:
    """The matrices that training begins with: drawn by the seed, the second ones zero.

    Each layer has a generator of its own, in host memory, so that neither the device nor the other
    targets change what a seed gives.
    """
    tensors: Tensors = {}
    for layer in adapted(spec, layers):
        bound = 1 / math.sqrt(layer.inputs)
        down = torch.empty(spec.rank, layer.inputs)
        down.uniform_(-bound, bound, generator=_generator(spec.seed, layer.name))
        tensors[f"{layer.name}.{DOWN}"] = down
        tensors[f"{layer.name}.{UP}"] = torch.zeros(layer.outputs, spec.rank)
    return tensors


def adapted(spec: AdapterSpec, layers: Sequence[LayerShape]) -> list[LayerShape]:
    """The layers that a spec's targets name."""
    return [layer for layer in layers if layer.target in spec.targets]


def shapes(spec: AdapterSpec, layers: Sequence[LayerShape]) -> dict[str, tuple[int, int]]:
    """The shape of each tensor of an adapter."""
    found: dict[str, tuple[int, int]] = {}
    for layer in adapted(spec, layers):
        found[f"{layer.name}.{DOWN}"] = (spec.rank, layer.inputs)
        found[f"{layer.name}.{UP}"] = (layer.outputs, spec.rank)
    return found


def pairs(tensors: Mapping[str, torch.Tensor]) -> dict[str, Pair]:
    """Both matrices of each layer."""
    names = [name.removesuffix(f".{DOWN}") for name in tensors if name.endswith(DOWN)]
    return {name: (tensors[f"{name}.{DOWN}"], tensors[f"{name}.{UP}"]) for name in names}


def moved(tensors: Mapping[str, torch.Tensor], device: torch.device) -> Tensors:
    """The same tensors on a device."""
    return {name: tensor.to(device) for name, tensor in tensors.items()}


def norm(tensors: Mapping[str, torch.Tensor]) -> float:
    """The norm of all tensors together; no number unless every element is one."""
    parts = torch._foreach_norm([tensors[name] for name in sorted(tensors)])
    return float(torch.stack(parts).norm())


def _generator(seed: int, layer: str) -> torch.Generator:
    digest = hashlib.sha256(f"{seed}:{layer}".encode()).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest[:8]) & _SEEDS)
