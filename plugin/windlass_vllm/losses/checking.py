"""Refusals of datums, losses and settings, before anything runs."""

import math
from collections.abc import Iterator, Mapping

from windlass_vllm.losses.datums import Float32Tensor, Int64Tensor, TinkerDatum, shape_of
from windlass_vllm.losses.specs import SPECS, TARGETS, LossInputs
from windlass_vllm.refusal import Refused

_SHOWN = 40
_MOST_TARGETS = 32
_MOST_FLOAT32 = 3.4028234663852886e38


def checked_settings(loss: str, given: Mapping[str, float]) -> dict[str, float]:
    """Returns the settings of a loss with their defaults; raises Refused."""
    if loss == "custom":
        message = "loss: graphs of custom losses are computed by the tuning service alone"
        raise Refused("invalid_request", message)
    if loss not in SPECS:
        raise Refused("invalid_request", f"loss: one of {', '.join(SPECS)}")
    if strange := sorted(given.keys() - SPECS[loss].settings.keys()):
        message = f"loss_config: {loss} has no setting {strange[0][:_SHOWN]!r}"
        raise Refused("invalid_request", message)
    settings = {**SPECS[loss].settings, **given}
    for name, value in settings.items():
        if not 0 <= value <= _MOST_FLOAT32:
            raise Refused("invalid_request", f"loss_config.{name}: a number from 0 on")
    low, high = settings.get("clip_low_threshold", 0.0), settings.get("clip_high_threshold", 1.0)
    if low > high:
        raise Refused("invalid_request", "loss_config.clip_low_threshold: above the high one")
    return settings


def datum_faults(
    datum: TinkerDatum, loss: str, vocabulary: int, context: int
) -> Iterator[tuple[str, str]]:
    """Yields what does not fit, by the field that it is in."""
    tokens, spec = datum.tokens, SPECS[loss]
    if not 1 <= len(tokens) <= context:
        yield "model_input", f"{len(tokens)} tokens, where a context has 1 to {context}"
    elif not _are_known(tokens, vocabulary):
        yield "model_input", f"ids are from 0 up to {vocabulary}"
    needs, given = {TARGETS, *spec.needs}, datum.loss_fn_inputs.keys()
    for name in sorted(needs - given):
        yield f"loss_fn_inputs.{name}", f"{loss} needs it"
    for name in sorted(given - needs - set(spec.takes)):
        yield f"loss_fn_inputs.{name[:_SHOWN]}", f"{loss} takes no such input"
    if TARGETS in given:
        for name, message in _input_faults(datum, spec, len(tokens), vocabulary):
            yield f"loss_fn_inputs.{name}", message


def _input_faults(
    datum: TinkerDatum, spec: LossInputs, length: int, vocabulary: int
) -> Iterator[tuple[str, str]]:
    """Targets, and then numbers that are as many as these."""
    inputs = dict(datum.loss_fn_inputs)
    targets = inputs.pop(TARGETS)
    shape = shape_of(targets)
    ranked = spec.ranked and len(shape) == 2 and 1 <= shape[1] <= _MOST_TARGETS
    if not isinstance(targets, Int64Tensor):
        yield TARGETS, "of int64"
    elif shape[:1] != (length,) or not (len(shape) == 1 or ranked):
        yield TARGETS, f"of the shape {shape} beside {length} tokens"
    elif math.prod(shape) != len(targets.data):
        yield TARGETS, f"{len(targets.data)} numbers of the shape {shape}"
    elif not _are_known(targets.data, vocabulary):
        yield TARGETS, f"ids are from 0 up to {vocabulary}"
    for name, one in inputs.items():
        if not isinstance(one, Float32Tensor):
            yield name, "of float32"
        elif shape_of(one) != shape or len(one.data) != len(targets.data):
            yield name, f"{len(one.data)} numbers of the shape {shape_of(one)} beside {shape}"
        elif not all(-_MOST_FLOAT32 <= value <= _MOST_FLOAT32 for value in one.data):
            yield name, "finite numbers of 32 bits"


def _are_known(ids: tuple[int, ...], vocabulary: int) -> bool:
    return not ids or (min(ids) >= 0 and max(ids) < vocabulary)
