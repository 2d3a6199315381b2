"""A model all of whose parameters are trained, whole or a part in each of several processes."""

from collections.abc import Callable, Mapping
from pathlib import Path
from types import EllipsisType
from typing import Any, TypeVar

import torch
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor

from windlass_agent.tuning.full.ranks import Ranks
from windlass_agent.tuning.full.tensors import Shape
from windlass_agent.tuning.network.base import BaseNetwork, UnfitBase

T = TypeVar("T")


class FullNetwork(torch.nn.Module):  # type: ignore[misc]  # torch is not followed
    """The packed network with parameters that learn, by the names of transformers.

    All of a pass happens within one call of this module: where parameters are shared out, it is
    what gathers them.
    """

    def __init__(self, base: BaseNetwork, ranks: Ranks):
        super().__init__()
        self.base = base
        self.ranks = ranks
        self.network: Any = base.network.requires_grad_(True)
        self.shapes: Mapping[str, Shape] = {
            name: tuple(one.shape) for name, one in self.network.named_parameters()
        }
        if ranks.mesh is not None:
            self._share_out()

    @classmethod
    def load(cls, folder: Path, identity: str, ranks: Ranks) -> "FullNetwork":
        """Reads a folder of safetensors; raises UnfitBase."""
        base = BaseNetwork.load(folder, identity, ranks.device, adapts=False)
        return cls(base, ranks)

    def forward(self, work: Callable[[], T]) -> T:
        """Does work that needs parameters; what it returns is made of tensors."""
        return work()

    @property
    def learned(self) -> dict[str, torch.nn.Parameter]:
        """The parameters, or this process's rows of them; a shared one once."""
        return dict(self.network.named_parameters())

    def whole(self, name: str, rows: torch.Tensor) -> torch.Tensor:
        """All rows of what belongs to a parameter; every process asks at once."""
        spread = self._spread(name, rows)
        return spread.full_tensor() if isinstance(spread, DTensor) else spread

    def take_gradient(self, name: str, rows: torch.Tensor) -> None:
        """Puts a parameter's gradient in place, or what of it lies here."""
        self.learned[name].grad = self._spread(name, rows)

    def rows(self, name: str) -> "slice | EllipsisType":
        """The rows of a parameter that lie in this process."""
        shape = self.shapes[name]
        if self.ranks.count == 1 or not shape:
            return ...
        # As torch cuts into chunks: all but the last ones have this many.
        each = -(-shape[0] // self.ranks.count)
        begin = min(self.ranks.rank * each, shape[0])
        return slice(begin, min(begin + each, shape[0]))

    def _spread(self, name: str, rows: torch.Tensor) -> torch.Tensor:
        """Rows that lie here as a part of what belongs to a parameter."""
        parameter = self.learned[name]
        if not isinstance(parameter, DTensor):
            return rows
        return DTensor.from_local(
            rows,
            parameter.device_mesh,
            parameter.placements,
            shape=parameter.shape,
            stride=parameter.stride(),
            run_check=False,
        )

    def _share_out(self) -> None:
        if any("expert" in name for name in self.shapes):
            # One that no token of a process went to has no gradient there, and one elsewhere.
            raise UnfitBase("a model of experts is trained by one process")
        layers = set(getattr(self.network, "_no_split_modules", None) or ())
        for module in self.network.modules():
            if type(module).__name__ in layers:
                fully_shard(module, mesh=self.ranks.mesh)
        # Also after a pass that learns nothing, which no backward pass follows.
        fully_shard(self, mesh=self.ranks.mesh, reshard_after_forward=True)
        for module in self.modules():
            if hasattr(module, "set_gradient_divide_factor"):
                # Losses are sums over sequences, whichever process has them.
                module.set_force_sum_reduction_for_comms(True)
                module.set_gradient_divide_factor(1.0)


def own(tensor: torch.Tensor) -> torch.Tensor:
    """Returns the rows of a parameter or a gradient that lie here; they share its memory."""
    found = tensor.to_local() if isinstance(tensor, DTensor) else tensor
    return found.detach()
