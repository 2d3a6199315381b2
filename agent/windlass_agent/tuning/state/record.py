"""Everything that a run is, between two operations."""

from dataclasses import dataclass, field

import torch

from windlass_agent.tuning.network.adapter import Tensors, moved
from windlass_agent.tuning.requests.operations import AdapterSpec, OptimizerKind


@dataclass(kw_only=True)
class RunState:
    """Weights, moments and gradients not yet applied; tensors are replaced, never written to."""

    adapter: AdapterSpec
    optimizer: OptimizerKind
    weights: Tensors
    moments: Tensors = field(default_factory=dict)
    gradients: Tensors = field(default_factory=dict)
    step: int = 0
    generator: torch.Tensor = field(
        default_factory=lambda: torch.Generator().manual_seed(0).get_state()
    )
    """What later random choices of the run begin from."""

    @property
    def scale(self) -> float:
        """The factor of the adapter's product."""
        return self.adapter.alpha / self.adapter.rank

    def moved(self, device: torch.device) -> "RunState":
        """Returns the same state with its tensors on a device."""
        return RunState(
            adapter=self.adapter,
            optimizer=self.optimizer,
            weights=moved(self.weights, device),
            moments=moved(self.moments, device),
            gradients=moved(self.gradients, device),
            step=self.step,
            generator=self.generator,
        )
