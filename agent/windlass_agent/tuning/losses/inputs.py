"""Inputs and settings of each loss, and the refusal of all others."""

import math

import numpy as np

from windlass.tuning_api.losses.graph import LossGraph
from windlass.tuning_api.losses.specs import SPECS, TARGETS, LossSpec
from windlass_agent.tuning.losses.graphs.evaluation import check_example
from windlass_agent.tuning.losses.graphs.graph import read_graph
from windlass_agent.tuning.requests.limits import TuningLimits
from windlass_agent.tuning.requests.operations import Array, ComputeLoss, Example
from windlass_agent.tuning.requests.refusal import TuningRefused

CUSTOM = "custom"
_SHOWN = 40


def check_loss(
    operation: ComputeLoss, vocabulary: int, context: int, limits: TuningLimits
) -> dict[str, float]:
    """Returns the settings with their defaults; raises TuningRefused for what does not fit."""
    spec = SPECS.get(operation.loss)
    custom = read_graph(operation.document) if operation.loss == CUSTOM else None
    if spec is None and custom is None:
        raise TuningRefused("unknown_loss", f"the loss {operation.loss[:_SHOWN]!r} is not known")
    if not 1 <= len(operation.examples) <= limits.examples:
        message = f"an operation takes 1 to {limits.examples} examples"
        raise TuningRefused("too_many_examples" if operation.examples else "no_examples", message)
    seen: set[object] = set()
    for place, example in enumerate(operation.examples):
        try:
            _check_tokens(example, vocabulary, context)
            if spec is not None:
                _check_inputs(example, spec, vocabulary, limits)
            elif custom is not None:
                _check_custom(example, custom, vocabulary, limits, seen)
        except TuningRefused as refusal:
            raise TuningRefused(refusal.reason, f"example {place}: {refusal.message}") from None
    return _settings(spec or LossSpec(()), operation)


def _check_tokens(example: Example, vocabulary: int, context: int) -> None:
    tokens = example.tokens
    if tokens.dtype != np.int64 or tokens.ndim != 1:
        raise TuningRefused("wrong_dtype", "tokens are a list of int64")
    if not 1 <= len(tokens) <= context:
        reason = "too_long" if len(tokens) else "empty_sequence"
        raise TuningRefused(reason, f"{len(tokens)} tokens, where 1 to {context} fit")
    _check_range("tokens", tokens, vocabulary)


def _check_inputs(example: Example, spec: LossSpec, vocabulary: int, limits: TuningLimits) -> None:
    given = set(example.inputs)
    if missing := {TARGETS, *spec.needs} - given:
        raise TuningRefused("missing_input", f"the loss needs {sorted(missing)[0]}")
    if strange := given - {TARGETS, *spec.needs, *spec.takes}:
        shown = sorted(strange)[0][:_SHOWN]
        raise TuningRefused("unknown_input", f"the loss does not take {shown!r}")
    targets = _checked_targets(example, vocabulary, limits.targets if spec.ranked else 0)
    for name in given - {TARGETS}:
        _check_values(name, example.inputs[name], targets)


def _check_custom(
    example: Example,
    custom: LossGraph,
    vocabulary: int,
    limits: TuningLimits,
    seen: set[object],
) -> None:
    if TARGETS not in example.inputs:
        raise TuningRefused("missing_input", f"the loss needs {TARGETS}")
    _checked_targets(example, vocabulary, limits.targets)
    for name, values in example.inputs.items():
        if values.ndim > 1 and values.shape[-1] > limits.targets:
            raise TuningRefused("wrong_shape", f"{name} have over {limits.targets} of a token")
        if values.dtype == np.float32 and not np.isfinite(values).all():
            raise TuningRefused("non_finite_input", f"{name} have a value that is no number")
    check_example(custom, example, seen)


def _checked_targets(example: Example, vocabulary: int, most: int) -> Array:
    targets = example.inputs[TARGETS]
    if targets.dtype != np.int64:
        raise TuningRefused("wrong_dtype", f"{TARGETS} are int64, not {targets.dtype}")
    ranked = targets.ndim == 2 and 1 <= targets.shape[-1] <= most
    if targets.shape[:1] != example.tokens.shape or not (targets.ndim == 1 or ranked):
        message = f"{TARGETS} have the shape {targets.shape} beside {len(example.tokens)} tokens"
        raise TuningRefused("wrong_shape", message)
    _check_range(TARGETS, targets, vocabulary)
    return targets


def _check_values(name: str, values: Array, targets: Array) -> None:
    if values.dtype != np.float32:
        raise TuningRefused("wrong_dtype", f"{name} are float32, not {values.dtype}")
    if values.shape != targets.shape:
        message = f"{name} have the shape {values.shape} beside targets of {targets.shape}"
        raise TuningRefused("wrong_shape", message)
    if not np.isfinite(values).all():
        raise TuningRefused("non_finite_input", f"{name} have a value that is no number")


def _check_range(name: str, tokens: Array, vocabulary: int) -> None:
    if tokens.size and not (int(tokens.min()) >= 0 and int(tokens.max()) < vocabulary):
        message = f"{name} have one that is none of the model's {vocabulary}"
        raise TuningRefused("unknown_token", message)


def _settings(spec: LossSpec, operation: ComputeLoss) -> dict[str, float]:
    if strange := set(operation.settings) - set(spec.settings):
        shown = sorted(strange)[0][:_SHOWN]
        raise TuningRefused("unknown_setting", f"{operation.loss} has no setting {shown!r}")
    settings = {**spec.settings, **operation.settings}
    for name, value in settings.items():
        if not (isinstance(value, int | float) and math.isfinite(value) and value >= 0):
            raise TuningRefused("invalid_setting", f"{name} is a number from 0 on")
    low, high = settings.get("clip_low_threshold", 0.0), settings.get("clip_high_threshold", 1.0)
    if low > high:
        raise TuningRefused("invalid_setting", "clip_low_threshold is above clip_high_threshold")
    return settings
