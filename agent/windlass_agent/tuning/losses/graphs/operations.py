"""Operations that a tenant's loss may use; none writes, or allocates by a number."""

import math
import operator
from collections.abc import Callable
from typing import Any

import torch

from windlass.tuning_api.losses.allowed import (
    CASTS,
    FUNCTIONAL,
    OF_TENSORS,
    OF_TORCH,
    OPERATORS,
)
from windlass_agent.tuning.requests.refusal import TuningRefused

Function = Callable[..., Any]

_LARGEST = 1e15
_MOST = 3


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and abs(value) <= _LARGEST


def _arithmetic(name: str) -> Function:
    """An operator over tensors and small numbers; powers of numbers alone are not computed."""
    apply: Function = getattr(operator, name)

    def checked(*values: Any) -> Any:
        tensors = any(isinstance(value, torch.Tensor) for value in values)
        if not all(isinstance(value, torch.Tensor) or _number(value) for value in values):
            raise TuningRefused("invalid_loss_graph", "an operator takes tensors and numbers")
        if name == "pow" and not tensors:
            return math.pow(*values)
        return apply(*values)

    return checked


def _item(value: Any, key: Any) -> Any:
    """Parts of a tensor or a shape by numbers and slices, whose sizes are known beforehand."""
    parts = key if isinstance(key, tuple) else (key,)
    plain = all(part is None or part is ... or type(part) in (int, slice) for part in parts)
    if not plain or not isinstance(value, torch.Tensor | tuple):
        raise TuningRefused("invalid_loss_graph", "parts are taken by numbers and slices")
    return value[key]


def _attribute(value: Any, name: Any) -> Any:
    if not isinstance(value, torch.Tensor) or name != "shape":
        raise TuningRefused("invalid_loss_graph", "of attributes only the shape is allowed")
    return tuple(value.shape)


def _size(value: torch.Tensor, dim: int | None = None) -> Any:
    return tuple(value.shape) if dim is None else value.shape[dim]


def _function(module: Any, name: str) -> Function:
    """A function of torch whose first argument is a tensor."""
    apply: Function = getattr(module, name)

    def checked(*values: Any, **named: Any) -> Any:
        if not values or not isinstance(values[0], torch.Tensor) or len(values) > _MOST:
            raise TuningRefused("invalid_loss_graph", f"{name} takes a tensor first")
        return apply(*values, **named)

    return checked


def _cast(value: torch.Tensor, dtype: Any) -> torch.Tensor:
    if not isinstance(value, torch.Tensor) or not isinstance(dtype, torch.dtype):
        raise TuningRefused("invalid_loss_graph", "`to` takes a type alone")
    return value.to(dtype)


FUNCTIONS: dict[str, Function] = {
    **{f"operator.{name}": _arithmetic(name) for name in OPERATORS},
    **{f"torch.{name}": _function(torch, name) for name in OF_TORCH},
    **{f"torch.nn.functional.{name}": _function(torch.nn.functional, name) for name in FUNCTIONAL},
    # As torch.fx names those that are not written in Python.
    "torch._C._nn.softplus": _function(torch.nn.functional, "softplus"),
    "torch._C._nn.log_sigmoid": _function(torch.nn.functional, "logsigmoid"),
    "operator.getitem": _item,
    "builtins.getattr": _attribute,
    "getattr": _attribute,
}
METHODS: dict[str, Function] = {
    **{name: _function(torch.Tensor, name) for name in (*OF_TENSORS, *CASTS)},
    "size": _size,
    "to": _cast,
}
