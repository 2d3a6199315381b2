"""Translation of an unmodified trainer's progress reports (KEP-2779) into trainer events.

transformers' own callback posts to whatever `KUBEFLOW_TRAINER_SERVER_URL` names, at most once in
five seconds. Its numbers are texts, and a step's are those of the last one that was logged.
"""

import math
from collections.abc import Iterator
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from windlass_agent.runner.protocol.trainer_events import Began, Ended, Logged, TrainerEvent

_STEP, _TOTAL, _EPOCH = "current_step", "total_steps", "current_epoch"
_MAX = 2**53
_Text = Annotated[str, Meta(max_length=256)]


class MalformedStatus(ValueError):
    """A status that is not one of KEP-2779."""


class _Metric(Struct, frozen=True):
    name: _Text
    value: _Text


class _Status(Struct, frozen=True, rename="camel"):
    metrics: Annotated[list[_Metric], Meta(max_length=256)] = []
    progress_percentage: Annotated[int, Meta(ge=0, le=100)] | None = None


class _Update(Struct, frozen=True, rename="camel"):
    trainer_status: _Status


_DECODER = msgspec.json.Decoder(_Update)


class StatusReader:
    """Reads the updates of one training, in their order."""

    def __init__(self) -> None:
        self._began = False
        self._step = 0
        self._total = 0
        self._epoch = 0.0

    def read(self, body: bytes) -> Iterator[TrainerEvent]:
        """Yields what an update tells; raises MalformedStatus."""
        try:
            status = _DECODER.decode(body).trainer_status
        except msgspec.MsgspecError as error:
            raise MalformedStatus(str(error)) from error
        numbers = dict(_numbers(status.metrics))
        self._total = _count(numbers.pop(_TOTAL, self._total))
        self._step = _count(numbers.pop(_STEP, self._step))
        self._epoch = numbers.pop(_EPOCH, self._epoch)
        if not self._began:
            self._began = True
            yield Began(step=self._step, total_steps=self._total, epoch=self._epoch)
        ended = status.progress_percentage == 100
        if ended:
            # The last update says no step.
            self._step = self._total
        if numbers:
            yield Logged(
                step=self._step,
                total_steps=self._total,
                epoch=self._epoch,
                logs=numbers,
                trained_tokens=_count(numbers.get("num_tokens", 0)),
            )
        if ended:
            yield Ended(step=self._step, total_steps=self._total, epoch=self._epoch)


def _count(number: float) -> int:
    return int(min(max(number, 0), _MAX))


def _numbers(metrics: list[_Metric]) -> Iterator[tuple[str, float]]:
    for one in metrics:
        try:
            value = float(one.value)
        except ValueError:
            continue
        if math.isfinite(value):
            yield one.name, value
