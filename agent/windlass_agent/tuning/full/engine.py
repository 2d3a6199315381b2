"""The engine of one run of all parameters, the same in each of its processes."""

import os
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from windlass.core import telemetry
from windlass_agent.tuning.endings import refusal
from windlass_agent.tuning.full.files import ModelFiles, OtherTensors
from windlass_agent.tuning.full.network import FullNetwork
from windlass_agent.tuning.full.ranks import Ranks
from windlass_agent.tuning.full.run import FullRun
from windlass_agent.tuning.full.saving import export_run, read_run, save_run
from windlass_agent.tuning.losses.inputs import check_loss
from windlass_agent.tuning.network.base import UnfitBase
from windlass_agent.tuning.optimizers.stepping import check_step
from windlass_agent.tuning.parking import ParkedTensors
from windlass_agent.tuning.requests.limits import TuningLimits
from windlass_agent.tuning.requests.operations import (
    ComputeLoss,
    ExportAdapter,
    LossResult,
    Operation,
    OperationResult,
    ReadState,
    StepOptimizer,
    StepResult,
)
from windlass_agent.tuning.requests.refusal import TuningRefused

log = telemetry.logger("tuning")
# What each process does when it hears it.
_BEGIN, _DO, _END = "begin", "do", "end"
_SMALL = 20_000_000


class FullEngine:
    """Does one operation after another, in all processes of a run at once; no two threads' work.

    The leader is asked; the others `follow`, and do the same.
    """

    def __init__(self, folder: Path, identity: str, limits: TuningLimits, ranks: Ranks):
        self._folder = folder
        self._identity = identity
        self._limits = limits
        self._ranks = ranks
        self._run: FullRun | None = None
        self._files: ModelFiles | None = None
        self._parked: ParkedTensors | None = None

    def begin(self, seed: int) -> None:
        """Loads the model for the run; raises TuningRefused for one that it cannot train."""
        self._ranks.shared((_BEGIN, seed))
        self._begin(seed)

    def do(self, operation: Operation) -> OperationResult:
        """Carries out one operation; raises TuningRefused, having changed nothing."""
        operation = self._checked(operation)
        self._ranks.shared((_DO, operation))
        return self._do(operation)

    def park(self) -> int:
        """Moves what the run has to the host's memory; returns the bytes.

        Raises RuntimeError for a run of several processes.
        """
        if self._ranks.count > 1:
            raise RuntimeError("a run of several processes does not park")
        if self._run is None:
            return 0
        self._parked = ParkedTensors(self._run.tensors)
        return self._parked.size

    def restore(self) -> None:
        """Brings it back."""
        if self._parked is not None:
            self._parked.restore()
            self._parked = None

    def end(self) -> None:
        """Lets the others go."""
        self._ranks.shared((_END, None))

    def follow(self) -> None:
        """Does what the leader is asked until that ends."""
        while True:
            heard: tuple[str, Any] = ("", None)
            word, asked = self._ranks.shared(heard)
            try:
                if word == _BEGIN:
                    self._begin(asked)
                elif word == _DO:
                    self._do(asked)
                else:
                    return
            except TuningRefused as found:
                # The leader's to tell.
                log.debug("operation_refused", reason=found.reason)

    def _begin(self, seed: int) -> None:
        try:
            network = FullNetwork.load(self._folder, self._identity, self._ranks)
            self._files = ModelFiles.of(self._folder, network.network)
        except UnfitBase as error:
            raise TuningRefused("unfit_base", str(error)) from error
        except OtherTensors as error:
            raise TuningRefused("unfit_base", f"its files are not its weights: {error}") from error
        if sum(torch.Size(shape).numel() for shape in network.shapes.values()) < _SMALL:
            # Waking a second thread costs more than it computes.
            torch.set_num_threads(1)
        self._run = FullRun(network, seed)

    def _do(self, operation: Operation) -> OperationResult:
        try:
            began = time.perf_counter()
            result = self._result(operation)
            if isinstance(result, LossResult | StepResult):
                return replace(result, device_seconds=time.perf_counter() - began)
            return result
        except TuningRefused:
            raise
        except Exception as error:
            if self._ranks.count > 1:
                # The others wait for what never comes: all end, and the run is brought back.
                log.error("rank_lost", rank=self._ranks.rank, exc_info=error)
                os._exit(1)
            raise refusal(error) from error

    def _result(self, operation: Operation) -> OperationResult:
        run, files = self._run, self._files
        assert run is not None and files is not None  # noqa: S101,PT018  # it was begun
        if isinstance(operation, ComputeLoss):
            return run.compute(operation)
        if isinstance(operation, StepOptimizer):
            return run.step(operation)
        if isinstance(operation, ReadState):
            return read_run(operation, run)
        if isinstance(operation, ExportAdapter):
            return export_run(operation.folder, run, files)
        return save_run(operation.folder, run)

    def _checked(self, operation: Operation) -> Operation:
        if isinstance(operation, StepOptimizer):
            check_step(operation)
        if not isinstance(operation, ComputeLoss):
            return operation
        base = self._network.base
        context = min(base.context, self._limits.context or base.context)
        settings = check_loss(operation, base.vocabulary, context, self._limits)
        return replace(operation, examples=tuple(operation.examples), settings=settings)

    @property
    def _network(self) -> FullNetwork:
        assert self._run is not None  # noqa: S101  # it was begun
        return self._run.network
