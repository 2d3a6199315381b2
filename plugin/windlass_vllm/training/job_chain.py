"""Jobs that go on from each other: forward passes and single steps of one run.

A chain is broken by whatever else moves the weights, and by the end of this process; then the next
job of the run is refused instead of computed on other weights.
"""

import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import NamedTuple

import torch

from windlass_vllm.messages import JobEnded, PassComputed, StepDone, Train, VersionSaved
from windlass_vllm.optimizers.in_backward import InBackwardOptimizer
from windlass_vllm.optimizers.saving import load_state
from windlass_vllm.refusal import Refused
from windlass_vllm.run_folder import RunFolder
from windlass_vllm.training.datum_loss import datum_loss, sequence_losses
from windlass_vllm.training.gradients import add_gradients, clip
from windlass_vllm.training.running import JobCaller, JobCancelled, failure_of
from windlass_vllm.training.saving import save
from windlass_vllm.training.seen_engine import SeenEngine


class SavedChain(NamedTuple):
    """A chain as a version has it; empty for none."""

    job: str = ""
    step: int = 0
    optimizer: InBackwardOptimizer | None = None


class JobChain:
    """The newest job of the chain, and the optimizer that its steps share."""

    def __init__(self, engine: SeenEngine) -> None:
        self._engine = engine
        # Empty while no job may go on from another.
        self.identity = ""
        self._steps = 0
        self._own: InBackwardOptimizer | None = None
        # A version on the disk whose optimizer the next step takes over.
        self._saved: tuple[Path, str] | None = None

    @property
    def kept(self) -> SavedChain:
        """The part that a version of the weights has to have so that the chain goes on from it."""
        if self._saved is not None:
            # The state is of another version, and nobody has read it.
            return SavedChain()
        return SavedChain(self.identity, self._steps, self._own)

    def break_off(self) -> None:
        """Forgets the chain: the weights are no longer those that it has left."""
        if self._own is not None:
            self._own.close()
        self.identity, self._steps, self._own, self._saved = "", 0, None, None

    def resume(self, run: Path) -> None:
        """Goes on from the newest version of a run, which was put in the place of the weights."""
        self.break_off()
        folder = RunFolder(run)
        try:
            progress = folder.progress()
            if progress is not None and progress.job:
                self.identity = progress.job
                if folder.state(progress.version).exists():
                    self._saved = run, progress.version
        finally:
            folder.close()

    def run(self, job: Train, caller: JobCaller) -> JobEnded:
        """Computes a job, and returns how it ended; it never raises for a job's fault."""
        if job.done:
            # The step is in the version that was put back.
            return JobEnded(job.job, "succeeded", job.done)
        try:
            self._go_on(job)
            if job.forward_only:
                self._forward(job, caller)
                return JobEnded(job.job, "succeeded", 0)
            self._step(job, caller)
            return JobEnded(job.job, "succeeded", 1)
        except JobCancelled:
            return JobEnded(job.job, "cancelled", 0)
        except (Refused, MemoryError, RuntimeError) as error:
            return JobEnded(job.job, "failed", 0, *failure_of(error))
        finally:
            for one in self._engine.model.parameters():
                one.grad = None

    def _go_on(self, job: Train) -> None:
        if not job.continues:
            self.break_off()
        elif self.identity.rpartition("/")[0] != job.continues:
            message = "continues: the weights are not those that the job before has left"
            raise Refused("state_lost", message)

    def _forward(self, job: Train, caller: JobCaller) -> None:
        found, losses, device = [], [], self._engine.model.device.type
        with torch.no_grad():
            for batch in _passes(job, caller):
                datums = job.datums[batch]
                every = sequence_losses(
                    self._engine.model, datums, job.loss, job.settings, device, whole=True
                )
                for logprobs, loss in every:
                    found.append(logprobs.flatten())
                    losses.append(_finite(loss))
        content = torch.cat([*found, torch.stack(losses)]).float().cpu().numpy()
        caller.send(PassComputed(job.job, content.astype("<f4").tobytes()))
        # A pass moves nothing: those after it go on from where it did.
        self.identity = self.identity or job.identity

    def _step(self, job: Train, caller: JobCaller) -> None:
        began = time.perf_counter()
        optimizer = self._optimizer(job)
        gradients, total = self._gradients(job, caller, optimizer)
        clip(gradients, job.clip_norm)
        if caller.is_cancelled(job.job):
            raise JobCancelled
        # Until the weights have followed, the optimizer is ahead of them.
        self.identity = ""
        changed = optimizer.stepped(gradients)
        with self._fence(job, caller):
            self._engine.counter.begin()
            for name, one in changed.items():
                optimizer.weights[name].data.copy_(one)
            self._engine.counter.end()
        self.identity, self._steps = job.identity, 1
        if job.save_steps:
            version = save(self._engine, Path(job.model), Path(job.run), **self.kept._asdict())
            caller.send(VersionSaved(job.job, 1, version))
        tokens = sum(one.length for one in job.datums)
        caller.send(StepDone(job.job, 1, total, tokens, time.perf_counter() - began))

    def _gradients(
        self, job: Train, caller: JobCaller, optimizer: InBackwardOptimizer
    ) -> tuple[dict[str, torch.Tensor], float]:
        """The sum of the gradients of all datums, in float32, and of their losses."""
        gradients: dict[str, torch.Tensor] = {}
        total, device = 0.0, self._engine.model.device.type
        for batch in _passes(job, caller):
            datums = job.datums[batch]
            loss = datum_loss(self._engine.model, datums, job.loss, job.settings, device)
            total += _finite(loss).item()
            add_gradients(gradients, loss, optimizer.weights)
        return gradients, total

    def _optimizer(self, job: Train) -> InBackwardOptimizer:
        """The chain's optimizer with the job's numbers; its state goes on."""
        if self._own is None:
            made = InBackwardOptimizer(self._engine.model.named_parameters(), job.optimizer)
            if self._saved is not None:
                run, version = self._saved
                folder = RunFolder(run)
                try:
                    load_state(folder.state(version), made, version)
                finally:
                    folder.close()
            self._own, self._saved = made, None
        if self._own.settings.kind != job.optimizer.kind:
            raise Refused("state_foreign", "optimizer: the job before has another")
        self._own.settings = job.optimizer
        return self._own

    def _fence(self, job: Train, caller: JobCaller) -> AbstractContextManager[None]:
        return caller.fence(job.job) if job.mode == "fenced" else nullcontext()


def _passes(job: Train, caller: JobCaller) -> Iterator[slice]:
    """Yields where the datums of each pass are; raises JobCancelled."""
    for first in range(0, len(job.datums), job.batch):
        if caller.is_cancelled(job.job):
            raise JobCancelled
        yield slice(first, first + job.batch)


def _finite(loss: torch.Tensor) -> torch.Tensor:
    if not loss.isfinite():
        raise Refused("non_finite_loss", "the loss is no number")
    return loss
