"""One pass: losses of many operations' examples, and their gradients."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from windlass.tuning_api.losses.specs import TARGETS
from windlass_agent.tuning.losses.formulas import FORMULAS
from windlass_agent.tuning.losses.graphs.evaluation import evaluate
from windlass_agent.tuning.losses.graphs.graph import read_graph
from windlass_agent.tuning.losses.heads import head_logprobs
from windlass_agent.tuning.losses.inputs import CUSTOM
from windlass_agent.tuning.network.adapter import Tensors, norm, pairs
from windlass_agent.tuning.network.base import BaseNetwork, PackedRows
from windlass_agent.tuning.network.layout import Segment
from windlass_agent.tuning.requests.operations import Example
from windlass_agent.tuning.requests.refusal import TuningRefused


@dataclass(frozen=True, kw_only=True)
class PassPart:
    """Examples of one operation that go through a pass, and the matrices that they meet."""

    examples: Sequence[Example]
    loss: str
    settings: Mapping[str, float]
    learns: bool
    document: str
    tensors: Tensors
    scale: float


@dataclass(frozen=True)
class Computed:
    """Losses and log-probabilities of the targets, by example, and the gradients of all."""

    losses: list[float]
    logprobs: list[npt.NDArray[np.float32]]
    gradients: Tensors
    own_metrics: list[dict[str, float]]
    """Metrics of a tenant's own loss, by example."""


def compute(base: BaseNetwork, parts: Sequence[PassPart]) -> list[Computed | TuningRefused]:
    """Runs all parts in one pass; one whose loss is no number is refused by itself."""
    leaves = [_leaves(part) for part in parts]
    with torch.set_grad_enabled(any(part.learns for part in parts)):
        found = pass_losses(base, parts, leaves)
    return _judge(parts, leaves, found)


class PassLosses(NamedTuple):
    """Losses of one part's examples, still with their graph."""

    values: list[torch.Tensor]
    logprobs: list[torch.Tensor]
    own_metrics: list[dict[str, torch.Tensor]]

    def finite(self) -> bool:
        """False where one is infinite or no number."""
        every = [torch.stack(self.values), *(tensor.flatten() for tensor in self.logprobs)]
        return bool(torch.isfinite(torch.cat([one.detach() for one in every])).all())

    def computed(self, gradients: Tensors) -> Computed:
        """The losses without their graph, with gradients that were found apart."""
        return Computed(
            [float(value.detach()) for value in self.values],
            [logprobs.detach().cpu().numpy() for logprobs in self.logprobs],
            gradients,
            [
                {name: float(value.detach()) for name, value in own.items()}
                for own in self.own_metrics
            ],
        )


def pass_losses(
    base: BaseNetwork, parts: Sequence[PassPart], leaves: Sequence[Tensors]
) -> list[PassLosses]:
    """Losses of all parts by one pass, each through its own matrices."""
    rows = _rows(base, parts, leaves)
    lengths = [end - start for start, end in rows.spans]
    # Split once, since the gradient of each slice would be as large as all rows.
    states = iter(torch.split(base.hidden(rows), lengths))
    return [
        _losses(base, [next(states) for _ in part.examples], part, segment)
        for part, segment in zip(parts, rows.segments, strict=True)
    ]


def _judge(
    parts: Sequence[PassPart], leaves: Sequence[Tensors], found: Sequence[PassLosses]
) -> list[Computed | TuningRefused]:
    sound = [losses.finite() for losses in found]
    learning = [place for place, part in enumerate(parts) if part.learns and sound[place]]
    gradients = _gradients(
        [value for place in learning for value in found[place].values],
        [leaves[place] for place in learning],
    )
    by_place = dict(zip(learning, gradients, strict=True))
    outcomes: list[Computed | TuningRefused] = []
    for place, losses in enumerate(found):
        if not sound[place]:
            outcomes.append(TuningRefused("non_finite_loss", "the loss is infinite or no number"))
            continue
        own = by_place.get(place, {})
        if own and not math.isfinite(norm(own)):
            message = "the gradient is infinite or no number"
            outcomes.append(TuningRefused("non_finite_gradient", message))
            continue
        outcomes.append(losses.computed(own))
    return outcomes


def _gradients(values: Sequence[torch.Tensor], leaves: Sequence[Tensors]) -> list[Tensors]:
    """Gradients of the sum, by part; each is that of its own losses, since no rows meet."""
    flat = [tensor for own in leaves for tensor in own.values()]
    # A tenant's own loss need not depend on anything.
    total = sum((value.reshape(()) for value in values if value.requires_grad), torch.zeros(()))
    if not total.requires_grad:
        return [{name: torch.zeros_like(one) for name, one in own.items()} for own in leaves]
    found = iter(torch.autograd.grad(total, flat, allow_unused=True, materialize_grads=True))
    return [{name: next(found) for name in own} for own in leaves]


def _leaves(part: PassPart) -> Tensors:
    """The matrices as leaves of this part alone: same memory, gradients of its own."""
    return {
        name: tensor.detach().requires_grad_(part.learns) for name, tensor in part.tensors.items()
    }


def _rows(base: BaseNetwork, parts: Sequence[PassPart], leaves: Sequence[Tensors]) -> PackedRows:
    spans, segments, tokens, end = [], [], [], 0
    for part, own in zip(parts, leaves, strict=True):
        start = end
        for example in part.examples:
            spans.append((end, end + len(example.tokens)))
            end += len(example.tokens)
            tokens.append(torch.from_numpy(example.tokens))
        segments.append(Segment(start, end, part.scale, pairs(own)))
    return PackedRows(torch.cat(tokens).to(base.device), spans, segments)


def _losses(
    base: BaseNetwork,
    states: Sequence[torch.Tensor],
    part: PassPart,
    segment: Segment,
) -> PassLosses:
    found = PassLosses([], [], [])
    for example, hidden in zip(part.examples, states, strict=True):
        inputs = {
            name: torch.from_numpy(array).to(base.device) for name, array in example.inputs.items()
        }
        own = head_logprobs(base, hidden, segment, inputs[TARGETS])
        metrics: dict[str, torch.Tensor] = {}
        if part.loss == CUSTOM:
            value, metrics = evaluate(read_graph(part.document), own, inputs)
        else:
            value = FORMULAS[part.loss](own, inputs, part.settings)
        found.values.append(value)
        found.logprobs.append(own)
        found.own_metrics.append(metrics)
    return found
