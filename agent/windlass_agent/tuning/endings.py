"""The one end of each future."""

import contextlib
from concurrent.futures import Future, InvalidStateError
from typing import Any

import torch

from windlass.core import telemetry
from windlass_agent.tuning.requests.refusal import TuningRefused

log = telemetry.logger("tuning")


class RunClosed(Exception):
    """The run was closed, or the engine stopped, before the operation ended."""


def end(future: "Future[Any]", outcome: object) -> None:
    """Sets an outcome, or raises it at who waits; the first one stands."""
    with contextlib.suppress(InvalidStateError):
        if isinstance(outcome, BaseException):
            future.set_exception(outcome)
        else:
            future.set_result(outcome)


def refusal(error: Exception) -> TuningRefused:
    """Makes the answer to a tenant of an error, and reports one that is not of its making."""
    if isinstance(error, TuningRefused):
        return error
    if isinstance(error, torch.OutOfMemoryError):
        return TuningRefused("out_of_memory", "the device has no memory for this operation")
    log.error("operation_failed", exc_info=error)
    return TuningRefused("engine_failed", "the engine failed at this operation")
