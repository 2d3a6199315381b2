"""An engine as its training worker sees it: its memory, a model over it, and its steps."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from windlass_vllm.training.viewed_model import view_model
from windlass_vllm.weights.handles import WeightHandles
from windlass_vllm.weights.step_counter import StepCounter

Weights = Mapping[str, torch.Tensor]


@dataclass(frozen=True)
class SeenEngine:
    """The live weights by the engine's names, and by Hugging Face's as a model of views."""

    handles: WeightHandles
    live: Weights
    model: Any
    counter: StepCounter

    def copied(self) -> Weights:
        """Returns a private copy of the live weights."""
        return {name: one.clone() for name, one in self.live.items()}

    def model_over(self, weights: Weights) -> Any:
        """Returns a model whose parameters are views of a copy."""
        return view_model(self.handles, dict(weights))


def overwrite(target: Weights, source: Weights) -> None:
    """Copies weights into the memory of others."""
    for name, one in target.items():
        one.copy_(source[name])
