"""Computations of runs as the inference service takes them, and their results; pure."""

import math
from collections.abc import Sequence
from struct import Struct, unpack
from typing import Any

from windlass.api.inference.v1 import inference_pb2 as pb
from windlass.core.errors import InvalidArgument
from windlass.tuning_api.losses.specs import TARGETS
from windlass.tuning_api.trainers.records import BatchLosses, Datum, DType, OptimStep, Run, Tensor

# The SDK's own, where a client sends none.
_ADAM = {
    "learning_rate": 1e-4, "beta1": 0.9, "beta2": 0.95, "eps": 1e-12, "weight_decay": 0.0,
    "grad_clip_norm": 0.0,
}  # fmt: skip
_FLOAT_BYTES = 4
_INTEGERS = {DType.INT32: "i", DType.INT64: "q"}
_BFLOAT16_SHIFT = 16


def computation(
    run: Run, operation_id: str, datums: Sequence[Datum], loss: str, config: dict[str, float]
) -> pb.ComputeInEngineRequest:
    """A forward pass; raises InvalidArgument for tensors of other types."""
    return pb.ComputeInEngineRequest(
        project_id=run.project_id,
        model=run.base_model,
        run_id=run.id,
        operation_id=operation_id,
        datums=[_datum(one) for one in datums],
        loss=loss,
        loss_config=config,
    )


def adam_step(step: OptimStep) -> pb.AdamStep:
    """The numbers of a step; raises InvalidArgument for a setting that AdamW has not."""
    if strange := sorted(step.values.keys() - _ADAM.keys()):
        raise InvalidArgument(f"AdamW has no setting {strange[0]!r}.", param=strange[0])
    numbers = _ADAM | dict(step.values)
    return pb.AdamStep(
        learning_rate=numbers["learning_rate"],
        beta1=numbers["beta1"],
        beta2=numbers["beta2"],
        eps=numbers["eps"],
        weight_decay=numbers["weight_decay"],
        clip_norm=numbers["grad_clip_norm"],
    )


def losses_of(outputs: bytes, datums: Sequence[Datum]) -> BatchLosses:
    """The log-probabilities and the losses of a forward pass; raises ValueError for another's."""
    shapes = [one.loss_inputs[TARGETS].shape for one in datums]
    counts = [math.prod(shape) for shape in shapes]
    if len(outputs) != _FLOAT_BYTES * (sum(counts) + len(datums)):
        raise ValueError("the engine computed as many numbers as other datums have")
    found, at = [], 0
    for shape, count in zip(shapes, counts, strict=True):
        end = at + _FLOAT_BYTES * count
        found.append({"logprobs": Tensor(DType.FLOAT32, shape, outputs[at:end])})
        at = end
    losses = unpack(f"<{len(datums)}f", outputs[at:])
    if not all(map(math.isfinite, losses)):
        raise ValueError("a loss is no number")
    tokens = sum(one.tokens.shape[0] for one in datums)
    return BatchLosses(found, {"loss:sum": math.fsum(losses), "tokens:sum": float(tokens)})


def _datum(datum: Datum) -> pb.TrainingDatum:
    return pb.TrainingDatum(
        tokens=_numbers(datum.tokens, "i"),
        loss_fn_inputs={
            name: _targets(one) if name == TARGETS else _floats(one)
            for name, one in datum.loss_inputs.items()
        },
    )


def _targets(tensor: Tensor) -> pb.TrainingTensor:
    if (kind := _INTEGERS.get(tensor.dtype)) is None:
        raise InvalidArgument(f"{TARGETS} must be integers.")
    return pb.TrainingTensor(ints=_numbers(tensor, kind), shape=tensor.shape)


def _floats(tensor: Tensor) -> pb.TrainingTensor:
    if tensor.dtype is DType.BFLOAT16:
        words = _numbers(tensor, "H")
        packed = Struct(f"<{len(words)}I").pack(*(one << _BFLOAT16_SHIFT for one in words))
        values = unpack(f"<{len(words)}f", packed)
    elif tensor.dtype is DType.FLOAT32:
        values = _numbers(tensor, "f")
    else:
        values = tuple(map(float, _numbers(tensor, _INTEGERS[tensor.dtype])))
    return pb.TrainingTensor(floats=values, shape=tensor.shape)


def _numbers(tensor: Tensor, kind: str) -> tuple[Any, ...]:
    return unpack(f"<{math.prod(tensor.shape)}{kind}", tensor.data)
