"""Processor time of something that must be cheap, whatever else a worker's process does."""

import time
from collections.abc import Callable


def thread_seconds(function: Callable[[], object]) -> float:
    """The processor time of a call, the less of two: one may collect the garbage of other tests.

    Threads that earlier tests left do not count.
    """
    return min(_once(function) for _ in range(2))


def _once(function: Callable[[], object]) -> float:
    began = time.thread_time()
    function()
    return time.thread_time() - began
