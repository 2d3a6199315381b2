"""Runs on the device; the others are parked in host memory."""

from collections import OrderedDict
from collections.abc import Iterable

import torch

from windlass_agent.tuning.runs import TuningRun

_HOST = torch.device("cpu")


class Residency:
    """Keeps the runs that were used last on the device, and up to `limit` of them."""

    def __init__(self, device: torch.device, limit: int):
        self._device = device
        self._limit = limit
        self._resident: OrderedDict[TuningRun, None] = OrderedDict()

    def use(self, runs: Iterable[TuningRun]) -> None:
        """Brings runs to the device, and parks others that have no part in a pass for them."""
        needed = dict.fromkeys(runs)
        for run in needed:
            if run not in self._resident:
                self._make_room(needed)
                run.move(self._device)
                self._resident[run] = None
            self._resident.move_to_end(run)

    def forget(self, runs: Iterable[TuningRun]) -> None:
        """Drops runs that were closed."""
        for run in runs:
            self._resident.pop(run, None)

    @property
    def resident(self) -> list[TuningRun]:
        """Runs on the device, the least recently used first."""
        return list(self._resident)

    def _make_room(self, needed: Iterable[TuningRun]) -> None:
        used = set(needed)
        idle = [run for run in self._resident if run not in used]
        while len(self._resident) >= self._limit and idle:
            run = idle.pop(0)
            run.move(_HOST)
            del self._resident[run]
