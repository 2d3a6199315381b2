"""Operations of a run, and their results."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.generic]
Target = Literal["attention", "mlp", "unembed"]
OptimizerKind = Literal["adamw", "dimuon"]
ALL_TARGETS: frozenset[Target] = frozenset(("attention", "mlp", "unembed"))


@dataclass(frozen=True, kw_only=True)
class AdapterSpec:
    """Shape and first values of an adapter; equal specs give equal matrices."""

    rank: int
    seed: int
    alpha: float = 32.0
    targets: frozenset[Target] = ALL_TARGETS


@dataclass(frozen=True, kw_only=True)
class RunSpec:
    """A run: its adapter, its optimizer, whom it belongs to and how it shares."""

    project: str
    adapter: AdapterSpec
    optimizer: OptimizerKind = "adamw"
    exclusive: bool = False
    """Each example in a pass of its own, so that no other changes a bit of its results."""
    weight: float = 1.0
    """Share of the project among those that wait."""


@dataclass(frozen=True, kw_only=True)
class Example:
    """A sequence; position i of each input is about what follows its i-th token."""

    tokens: npt.NDArray[np.int64]
    inputs: Mapping[str, Array]


@dataclass(frozen=True, kw_only=True)
class ComputeLoss:
    """Losses of examples, and their gradients added to those not yet applied if it `learns`."""

    examples: Sequence[Example]
    loss: str
    settings: Mapping[str, float] = field(default_factory=dict)
    learns: bool = True
    document: str = ""
    """The formula of the loss `custom`."""


@dataclass(frozen=True, kw_only=True)
class StepOptimizer:
    """One step along the gradients, which are used up; `grad_clip_norm` 0 clips nothing."""

    learning_rate: float = 1e-4
    beta1: float = 0.9
    beta2: float = 0.95
    eps: float = 1e-12
    weight_decay: float = 0.0
    grad_clip_norm: float = 0.0


@dataclass(frozen=True)
class WriteState:
    """Everything that the run needs to go on, into a folder that is new or empty."""

    folder: Path


@dataclass(frozen=True, kw_only=True)
class ReadState:
    """A saved state or an exported adapter in place of the run's own.

    Without the optimizer, and from an adapter, the optimizer begins afresh, without gradients.
    """

    folder: Path
    optimizer: bool = True


@dataclass(frozen=True)
class ExportAdapter:
    """The adapter in PEFT's format, into a folder that is new or empty."""

    folder: Path


Barrier = StepOptimizer | WriteState | ReadState | ExportAdapter
Operation = ComputeLoss | Barrier


@dataclass(frozen=True, kw_only=True)
class LossResult:
    """Log-probabilities of each example's targets, and metrics named `name:reduction`."""

    logprobs: list[npt.NDArray[np.float32]]
    metrics: dict[str, float]
    device_seconds: float = field(default=0.0, compare=False)
    """Its share, by tokens, of the time of the passes that it went through."""


@dataclass(frozen=True, kw_only=True)
class StepResult:
    """Steps taken so far, and metrics of this one."""

    step: int
    metrics: dict[str, float]
    device_seconds: float = field(default=0.0, compare=False)


@dataclass(frozen=True, kw_only=True)
class FolderResult:
    """A folder that was written or read: its bytes, and the digest of what vouches for them."""

    size: int
    digest: str
    was_read: bool = False


OperationResult = LossResult | StepResult | FolderResult
