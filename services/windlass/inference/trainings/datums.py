"""Datums of trainings: what can be refused before an engine has them, and how it reads them."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from windlass.api.inference.v1 import inference_pb2 as pb
from windlass.core.errors import InvalidArgument
from windlass.tuning_api.losses.specs import MOST_TARGETS, SPECS, TARGETS, LossSpec

_MOST_FLOAT32 = 3.4028234663852886e38
_SHOWN = 40


def check_loss(loss: str, config: Mapping[str, float]) -> LossSpec:
    """Returns what a loss takes; raises InvalidArgument for one or a setting that is not known."""
    if loss not in SPECS:
        only = " The tuning service alone computes custom losses." if loss == "custom" else ""
        raise InvalidArgument(f"loss must be one of {', '.join(SPECS)}.{only}", param="loss")
    settings = {**SPECS[loss].settings, **config}
    for name, value in settings.items():
        where = f"loss_config.{name[:_SHOWN]}"
        if name not in SPECS[loss].settings:
            raise InvalidArgument(f"{loss} has no setting {name[:_SHOWN]!r}.", param=where)
        if not 0 <= value <= _MOST_FLOAT32:
            raise InvalidArgument(f"{where} must be a number from 0 on.", param=where)
    low, high = settings.get("clip_low_threshold", 0.0), settings.get("clip_high_threshold", 1.0)
    if low > high:
        raise InvalidArgument(
            "clip_low_threshold must not be above clip_high_threshold.", param="loss_config"
        )
    return SPECS[loss]


def datum_length(at: str, datum: pb.TrainingDatum, spec: LossSpec) -> int:
    """Returns the tokens of a datum; raises InvalidArgument, naming the field."""
    if not datum.tokens or min(datum.tokens) < 0:
        where = f"{at}.model_input"
        raise InvalidArgument(f"{where} must be ids from 0 on, one at least.", param=where)
    inputs, needs = dict(datum.loss_fn_inputs), {TARGETS, *spec.needs}
    for name in sorted(needs ^ inputs.keys()):
        where = f"{at}.loss_fn_inputs.{name[:_SHOWN]}"
        if name in needs:
            raise InvalidArgument(f"{where} is missing: the loss needs it.", param=where)
        if name not in spec.takes:
            raise InvalidArgument(f"{where} is no input of the loss.", param=where)
    targets = inputs.pop(TARGETS)
    shape = tuple(targets.shape) or (len(targets.ints),)
    _check_targets(f"{at}.loss_fn_inputs.{TARGETS}", targets, shape, len(datum.tokens), spec)
    for name, one in inputs.items():
        _check_numbers(f"{at}.loss_fn_inputs.{name}", one, shape)
    return len(datum.tokens)


def datum_words(datums: Sequence[pb.TrainingDatum]) -> list[dict[str, Any]]:
    """Datums as the plugin reads them."""
    return [
        {
            "model_input": {"chunks": [{"tokens": list(one.tokens)}]},
            "loss_fn_inputs": {
                name: _tensor_words(tensor) for name, tensor in one.loss_fn_inputs.items()
            },
        }
        for one in datums
    ]


def _tensor_words(tensor: pb.TrainingTensor) -> dict[str, Any]:
    kind, data = ("int64", tensor.ints) if tensor.ints else ("float32", tensor.floats)
    shape = {"shape": list(tensor.shape)} if tensor.shape else {}
    return {"dtype": kind, "data": list(data)} | shape


def _check_targets(
    where: str, targets: pb.TrainingTensor, shape: tuple[int, ...], length: int, spec: LossSpec
) -> None:
    ranked = spec.ranked and len(shape) == 2 and 1 <= shape[1] <= MOST_TARGETS
    if targets.floats or not targets.ints or min(targets.ints) < 0:
        raise InvalidArgument(f"{where} must be ids from 0 on, of int64.", param=where)
    fits = shape[0] == length and (len(shape) == 1 or ranked)
    if not fits or math.prod(shape) != len(targets.ints):
        raise InvalidArgument(f"{where} must be as many as the {length} tokens.", param=where)


def _check_numbers(where: str, one: pb.TrainingTensor, shape: tuple[int, ...]) -> None:
    if one.ints or (tuple(one.shape) or (len(one.floats),)) != shape:
        raise InvalidArgument(
            f"{where} must be numbers of float32, in the shape of {TARGETS}.", param=where
        )
    if len(one.floats) != math.prod(shape):
        raise InvalidArgument(f"{where} must be as many as its shape says.", param=where)
    if not all(-_MOST_FLOAT32 <= value <= _MOST_FLOAT32 for value in one.floats):
        raise InvalidArgument(f"{where} must be finite numbers of 32 bits.", param=where)
