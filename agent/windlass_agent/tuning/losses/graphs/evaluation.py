"""Evaluation of a tenant's loss, first of shapes alone, then of numbers."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch

from windlass.tuning_api.losses.graph import LossGraph, LossNode
from windlass_agent.tuning.losses.graphs.operations import FUNCTIONS, METHODS
from windlass_agent.tuning.requests.operations import Array, Example
from windlass_agent.tuning.requests.refusal import TuningRefused

# Elements of all tensors that a loss makes of one sequence, which its gradient keeps.
ELEMENTS = 1 << 24
_TARGETS = "target_tokens"
_TYPES = {
    "float32": torch.float32,
    "int64": torch.int64,
    "bool": torch.bool,
}
Inputs = Mapping[str, torch.Tensor]


def check_example(graph: LossGraph, example: Example, seen: set[object]) -> None:
    """Raises TuningRefused unless the loss fits an example's inputs within its bounds.

    `seen` are shapes of others that it fits; those of this one are added.
    """
    targets = example.inputs[_TARGETS]
    for given in graph.inputs:
        values = targets if given.name == "logprobs" else example.inputs.get(given.name)
        if values is None:
            raise TuningRefused("missing_input", f"the loss needs {given.name}")
        if values.ndim != given.rank or (given.rank and len(values) != len(example.tokens)):
            raise TuningRefused("wrong_shape", f"{given.name} is not of rank {given.rank}")
    shapes = {
        name: torch.empty(values.shape, dtype=_dtype(values), device="meta")
        for name, values in example.inputs.items()
        if name in {given.name for given in graph.inputs}
    }
    logprobs = torch.empty(targets.shape, device="meta")
    met = (targets.shape, *((name, one.shape, one.dtype) for name, one in sorted(shapes.items())))
    if met in seen:
        return
    left = ELEMENTS

    def bounded(value: Any) -> None:
        nonlocal left
        parts = value if isinstance(value, tuple) else (value,)
        left -= sum(part.numel() for part in parts if isinstance(part, torch.Tensor))
        if left < 0:
            raise TuningRefused("invalid_loss_graph", f"the loss makes over {ELEMENTS} numbers")

    evaluate(graph, logprobs, shapes, bounded)
    seen.add(met)


def evaluate(
    graph: LossGraph,
    logprobs: torch.Tensor,
    inputs: Inputs,
    watch: Callable[[Any], None] = lambda _: None,
) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    """Returns the loss and the metrics; raises TuningRefused for what does not fit together."""
    given = {"logprobs": logprobs, **{name: inputs[name] for name in inputs if name != "logprobs"}}
    values: dict[str, Any] = {}
    try:
        for node in graph.graph.nodes[:-1]:
            value = given[node.target] if node.op == "placeholder" else _apply(node, values)
            watch(value)
            values[node.name] = value
    except TuningRefused:
        raise
    except Exception as error:
        message = f"the loss cannot be computed: {str(error)[:200]}"
        raise TuningRefused("invalid_loss_graph", message) from None
    loss, metrics = graph.result
    found = {name: values[ref] for name, ref in metrics.items()}
    for value in (values[loss], *found.values()):
        if not isinstance(value, torch.Tensor) or value.ndim:
            raise TuningRefused("invalid_loss_graph", "the loss and its metrics are one number")
    if values[loss].dtype != torch.float32:
        raise TuningRefused("invalid_loss_graph", "the loss is a number of float32")
    return values[loss], found


def _apply(node: LossNode, values: Mapping[str, Any]) -> Any:
    table = FUNCTIONS if node.op == "call_function" else METHODS
    arguments = [_decoded(value, values) for value in node.args]
    named = {name: _decoded(value, values) for name, value in node.kwargs.items()}
    return table[node.target](*arguments, **named)


def _decoded(value: Any, values: Mapping[str, Any]) -> Any:
    if isinstance(value, list):
        return [_decoded(part, values) for part in value]
    if not isinstance(value, dict):
        return value
    [(kind, content)] = value.items()
    if kind == "ref":
        return values[content]
    if kind == "tuple":
        return tuple(_decoded(part, values) for part in content)
    if kind == "slice":
        return slice(*(_decoded(part, values) for part in content))
    if kind == "ellipsis":
        return ...
    if kind == "float":
        return float(content)
    if kind == "dtype" and content in _TYPES:
        return _TYPES[content]
    raise TuningRefused("invalid_loss_graph", f"an argument is a {str(kind)[:40]!r}")


def _dtype(values: Array) -> torch.dtype:
    if values.dtype == np.float32:
        return torch.float32
    if values.dtype == np.int64:
        return torch.int64
    raise TuningRefused("wrong_dtype", f"inputs are float32 or int64, not {values.dtype}")
