"""Computations of runs in engines as the plugin reads them; pure."""

import math
from typing import Any

import msgspec

from windlass.api.inference.v1 import inference_pb2 as pb
from windlass.core.errors import InvalidArgument
from windlass.inference.trainings.datums import check_loss, datum_length, datum_words
from windlass.inference.trainings.training import MAX_BODY_BYTES
from windlass.tuning_api.losses.specs import TARGETS

MAX_SECONDS = 3600
_MAX_DATUMS = 10_000
_FLOAT_BYTES = 4
_BETAS = ("beta1", "beta2")


def checked_computation(request: pb.ComputeInEngineRequest) -> int:
    """Returns the bytes of a forward pass's outputs; raises InvalidArgument, naming the field.

    Those are the log-probabilities of all targets, then the loss of each datum, in float32.
    """
    if not 1 <= len(request.datums) <= _MAX_DATUMS:
        raise InvalidArgument(
            f"A step in an engine has 1 to {_MAX_DATUMS} datums.", reason="too_many_examples"
        )
    spec = check_loss(request.loss, request.loss_config)
    for at, one in enumerate(request.datums):
        datum_length(f"data.{at}", one, spec)
    if request.HasField("step"):
        _check_step(request.step)
    return _FLOAT_BYTES * (sum(map(_targets, request.datums)) + len(request.datums))


def body_of_computation(
    request: pb.ComputeInEngineRequest, identifier: str, mode: str, continues: str
) -> bytes:
    """The computation as the plugin reads it; raises InvalidArgument for one that is too large."""
    words: dict[str, Any] = {
        "mode": mode,
        "idempotency_key": identifier,
        "continues": continues,
        "datums": datum_words(request.datums),
        "loss": request.loss,
        "loss_config": dict(request.loss_config),
        "max_seconds": MAX_SECONDS,
    }
    if request.HasField("step"):
        step = request.step
        names = (*_BETAS, "eps", "weight_decay", "clip_norm")
        words |= {"one_step": True, "optimizer": "adamw", "learning_rate": step.learning_rate}
        words |= {"adam": {name: getattr(step, name) for name in names}}
    else:
        words |= {"forward_only": True}
    body = msgspec.json.encode(words)
    if len(body) > MAX_BODY_BYTES:
        raise InvalidArgument(
            f"The datums of a step in an engine exceed {MAX_BODY_BYTES} bytes; take a step after "
            "fewer of them.",
            reason="step_too_large",
        )
    return body


def _targets(datum: pb.TrainingDatum) -> int:
    return len(datum.loss_fn_inputs[TARGETS].ints)


def _check_step(step: pb.AdamStep) -> None:
    numbers = {
        name: getattr(step, name)
        for name in ("learning_rate", *_BETAS, "eps", "weight_decay", "clip_norm")
    }
    for name, value in numbers.items():
        if not math.isfinite(value) or value < 0:
            raise InvalidArgument(f"{name} must be a number from 0 on.", param=name)
    if step.learning_rate > 10:
        raise InvalidArgument("learning_rate must be 0 to 10.", param="learning_rate")
    for name in _BETAS:
        if numbers[name] >= 1:
            raise InvalidArgument(f"{name} must be below 1.", param=name)
    if not step.eps:
        raise InvalidArgument("eps must be above 0.", param="eps")
