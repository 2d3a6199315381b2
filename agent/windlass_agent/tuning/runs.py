"""A run: its state, its queue, and the barriers that it passes."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import torch

from windlass_agent.tuning.computing import Computed
from windlass_agent.tuning.network.adapter import Tensors, first_values, moved
from windlass_agent.tuning.network.base import BaseNetwork
from windlass_agent.tuning.optimizers.stepping import take_step
from windlass_agent.tuning.requests.operations import (
    Barrier,
    ExportAdapter,
    FolderResult,
    OperationResult,
    ReadState,
    RunSpec,
    StepOptimizer,
    StepResult,
)
from windlass_agent.tuning.requests.refusal import TuningRefused
from windlass_agent.tuning.scheduling.planning import PassQueue
from windlass_agent.tuning.scheduling.queues import Ticket
from windlass_agent.tuning.state import folders
from windlass_agent.tuning.state.peft_format import CONFIG, export_adapter, import_adapter
from windlass_agent.tuning.state.record import RunState
from windlass_agent.tuning.state.saving import load_state, save_state


@dataclass
class OperationProgress:
    """Results of an operation whose examples are still going through passes."""

    losses: list[float] = field(default_factory=list)
    computed: list[Computed] = field(default_factory=list)
    gradients: Tensors | None = None
    """The run's gradients with this operation's; the run's own until it ends."""


class TuningRun(PassQueue):
    """A tenant's run on the engine; touched by the engine's thread alone, its queue aside.

    It begins in host memory.
    """

    def __init__(self, spec: RunSpec, base: BaseNetwork):
        super().__init__(spec)
        self._base = base
        self.state = RunState(
            adapter=spec.adapter,
            optimizer=spec.optimizer,
            weights=first_values(spec.adapter, base.layers),
        )
        self.progress: dict[Ticket, OperationProgress] = {}

    def move(self, device: torch.device) -> None:
        """Moves every tensor of the run, also those of operations on their way."""
        self.state = self.state.moved(device)
        for progress in self.progress.values():
            if progress.gradients is not None:
                progress.gradients = moved(progress.gradients, device)

    def tensors(self) -> Iterator[torch.Tensor]:
        """Every tensor that moves."""
        parts = [self.state.weights, self.state.moments, self.state.gradients]
        parts += [one.gradients for one in self.progress.values() if one.gradients is not None]
        for part in parts:
            yield from part.values()

    def fold(self, ticket: Ticket, computed: Computed) -> None:
        """Adds what a pass computed of an operation; its gradients one after another."""
        progress = self.progress.setdefault(ticket, OperationProgress())
        progress.computed.append(replace(computed, gradients={}))
        if not computed.gradients:
            return
        before = self.state.gradients if progress.gradients is None else progress.gradients
        progress.gradients = {
            name: before[name] + gradient if before else gradient
            for name, gradient in computed.gradients.items()
        }

    def finish(self, ticket: Ticket) -> list[Computed]:
        """Ends an operation: from here on its gradients are the run's."""
        progress = self.progress.pop(ticket)
        if progress.gradients is not None:
            self.state.gradients = progress.gradients
        return progress.computed

    def abandon_ended(self) -> None:
        """Abandons operations that nobody waits for any more."""
        self.progress = {one: done for one, done in self.progress.items() if not one.future.done()}

    def abandon(self, ticket: Ticket) -> None:
        """Ends an operation that leaves no trace."""
        self.progress.pop(ticket, None)

    def pass_barrier(self, operation: Barrier) -> OperationResult:
        """Carries out what no pass is needed for; raises TuningRefused, having changed nothing."""
        if isinstance(operation, StepOptimizer):
            return self._step(operation)
        if isinstance(operation, ReadState):
            return self._read(operation)
        state, base = self.state, self._base.identity
        if isinstance(operation, ExportAdapter):
            digest = export_adapter(operation.folder, state.weights, state.adapter, base)
        else:
            digest = save_state(operation.folder, state, base)
        return FolderResult(size=folders.size(operation.folder), digest=digest)

    def _step(self, operation: StepOptimizer) -> StepResult:
        state = self.state
        # The sum of no gradients is zero: moments fade, and the step counts.
        gradients = state.gradients or {
            name: torch.zeros_like(weight) for name, weight in state.weights.items()
        }
        made = take_step(
            state.optimizer,
            state.weights,
            gradients,
            state.moments,
            state.step + 1,
            operation,
        )
        state.weights, state.moments, state.gradients = made.weights, made.moments, {}
        state.step += 1
        return StepResult(step=state.step, metrics={"gradient_norm:max": made.norm})

    def _read(self, operation: ReadState) -> FolderResult:
        base, folder = self._base, operation.folder
        if (folder / CONFIG).is_file():
            spec, weights = import_adapter(folder, base.identity, base.layers, base.device)
            found = RunState(adapter=spec, optimizer=self.state.optimizer, weights=weights)
            digest = folders.digest(folder / CONFIG)
        else:
            found, digest = load_state(folder, base.identity, base.layers, base.device)
            if not operation.optimizer:
                found = RunState(
                    adapter=found.adapter, optimizer=self.state.optimizer, weights=found.weights
                )
        own = self.state.adapter
        if (found.adapter.rank, found.adapter.targets) != (own.rank, own.targets):
            raise TuningRefused("other_shape", "the state is of another rank, or of other layers")
        if found.optimizer != self.state.optimizer:
            raise TuningRefused("other_optimizer", f"the state is one of {found.optimizer}")
        self.state = found
        return FolderResult(size=folders.size(folder), digest=digest, was_read=True)
