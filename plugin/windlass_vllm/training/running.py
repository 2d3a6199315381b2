"""One job from its first step to its last."""

import time
from contextlib import AbstractContextManager
from itertools import islice
from pathlib import Path
from typing import Protocol

import torch

from windlass_vllm.messages import FromWorker, JobEnded, StepDone, Train, VersionSaved
from windlass_vllm.optimizers.in_backward import InBackwardOptimizer
from windlass_vllm.optimizers.saving import load_state
from windlass_vllm.refusal import Refused
from windlass_vllm.run_folder import RunFolder
from windlass_vllm.training.held_out import HeldOutMeasure, HeldOutSet
from windlass_vllm.training.saving import save
from windlass_vllm.training.seen_engine import SeenEngine, Weights, overwrite
from windlass_vllm.training.step_loss import batches, step_loss

# Words of torch's allocator of the CPU, which raises no error of its own for it.
_LACKING = ("can't allocate memory", "not enough memory", "Cannot allocate memory")


class JobCancelled(Exception):
    """A job was to end before its next change of the weights."""


class JobCaller(Protocol):
    """The one who wants a job."""

    def send(self, message: FromWorker) -> None:
        """Hears of a step or a version."""

    def is_cancelled(self, job: str) -> bool:
        """Returns whether the job was to end by now."""

    def fence(self, job: str, *, certain: bool = False) -> AbstractContextManager[None]:
        """Keeps serving still; raises JobCancelled where the job is to end, unless certain."""


class TrainingRun:
    """One job on an engine's weights, or on a copy that is put in their place."""

    def __init__(self, engine: SeenEngine, job: Train, caller: JobCaller) -> None:
        self._engine, self._job, self._caller = engine, job, caller
        self._steps = self._placed = self._good_step = job.done
        self._total = job.steps
        self._optimizer: InBackwardOptimizer | None = None
        self._model = engine.model
        self._copy: Weights | None = None
        self._good: Weights | None = None
        self._held_out: HeldOutSet | None = None

    def run(self) -> JobEnded:
        """Trains, and returns how the job ended; it never raises for a job's fault."""
        try:
            self._prepare()
            self._train()
            return JobEnded(self._job.job, "succeeded", self._steps)
        except JobCancelled:
            return JobEnded(self._job.job, "cancelled", self._steps)
        except (Refused, MemoryError, RuntimeError) as error:
            return self._failed(*failure_of(error))
        finally:
            if self._optimizer is not None:
                self._optimizer.close()
            for one in self._engine.model.parameters():
                one.grad = None

    def _prepare(self) -> None:
        job = self._job
        if job.mode == "shadow":
            self._copy = self._engine.copied()
            self._model = self._engine.model_over(self._copy)
        elif job.guard:
            self._good = self._engine.copied()
        self._optimizer = InBackwardOptimizer(self._model.named_parameters(), job.optimizer)
        if job.done:
            _load(Path(job.run), self._optimizer)
        if job.guard:
            self._held_out = HeldOutSet(job.guard, self._model, job.batch)

    def _train(self) -> None:
        job = self._job
        every = batches(len(job.samples or job.datums), job.batch, job.epochs)
        for step in islice(every, self._steps, None):
            if self._caller.is_cancelled(job.job):
                raise JobCancelled
            began = time.perf_counter()
            loss, tokens = step_loss(self._model, job, step)
            if not loss.isfinite():
                raise Refused("non_finite_loss", "the loss is no number")
            self._step(loss)
            self._steps += 1
            seconds = time.perf_counter() - began
            self._say(self._after_step(), loss.item(), tokens, seconds)

    def _step(self, loss: torch.Tensor) -> None:
        """Hogwild applies a gradient as it is made; behind a fence all are made first."""
        optimizer, counter = self._optimizer, self._engine.counter
        assert optimizer is not None  # noqa: S101  # _prepare made it.
        if self._job.mode == "shadow":
            optimizer.backward(loss)
        elif self._job.mode == "hogwild":
            counter.begin()
            optimizer.backward(loss)
            counter.end()
        else:
            # All is computed beside serving, which stands still for a copy alone.
            made = torch.autograd.grad(loss, list(optimizer.weights.values()), allow_unused=True)
            found = zip(optimizer.weights, made, strict=True)
            gradients = {name: one for name, one in found if one is not None}
            del made, found
            changed = optimizer.stepped(gradients)
            with self._caller.fence(self._job.job):
                counter.begin()
                for name, one in changed.items():
                    optimizer.weights[name].data.copy_(one)
                counter.end()

    def _after_step(self) -> HeldOutMeasure | None:
        """Measures, puts in place and saves; nothing is put in place or saved unmeasured."""
        job, is_last = self._job, self._steps == self._total
        places = self._copy is not None and (is_last or _is_due(self._steps, job.place_steps))
        saves = bool(job.save_steps) and (is_last or _is_due(self._steps, job.save_steps))
        if self._copy is not None:
            # A version that is saved is one that is served.
            saves = places and bool(job.save_steps)
        measured = None
        if job.guard and (is_last or places or saves or _is_due(self._steps, job.guard.every)):
            measured = self._measure()
        if places:
            self._place()
        if saves:
            version = save(
                self._engine,
                Path(job.model),
                Path(job.run),
                job=job.identity,
                step=self._steps,
                optimizer=self._optimizer,
            )
            self._caller.send(VersionSaved(job.job, self._steps, version))
        return measured

    def _measure(self) -> HeldOutMeasure:
        assert self._held_out is not None  # noqa: S101  # There is a guard.
        found = self._held_out.measure(self._model)
        if fault := self._held_out.fault(found):
            raise Refused("guard_tripped", f"step {self._steps}: {fault}")
        if self._good is not None:
            overwrite(self._good, self._engine.live)
        self._good_step = self._steps
        return found

    def _place(self) -> None:
        """Puts the copy in the place of the live weights, as one version."""
        assert self._copy is not None  # noqa: S101  # Only shadow mode places.
        with self._caller.fence(self._job.job):
            self._engine.counter.begin(self._steps - self._placed)
            overwrite(self._engine.live, self._copy)
            self._engine.counter.end()
        self._placed = self._steps

    def _failed(self, reason: str, message: str) -> JobEnded:
        """The end of a job, whose last good version is put back where there is a guard."""
        kept = self._placed if self._copy is not None else None
        if self._good is not None:
            with self._caller.fence(self._job.job, certain=True):
                self._engine.counter.begin()
                overwrite(self._engine.live, self._good)
                self._engine.counter.end()
            kept = self._good_step
        if kept is not None:
            message = f"{message}; the weights are those of step {kept}"
        return JobEnded(self._job.job, "failed", self._steps, reason, message, kept_steps=kept)

    def _say(
        self, measured: HeldOutMeasure | None, loss: float, tokens: int, seconds: float
    ) -> None:
        held_out, kl = (measured.loss, measured.kl) if measured else (None, None)
        self._caller.send(StepDone(self._job.job, self._steps, loss, tokens, seconds, held_out, kl))


def failure_of(error: Refused | MemoryError | RuntimeError) -> tuple[str, str]:
    """Returns the reason and the message of a job that an error has ended."""
    if isinstance(error, Refused):
        return error.reason, str(error)
    memory = isinstance(error, MemoryError | torch.OutOfMemoryError)
    lacking = memory or any(words in str(error) for words in _LACKING)
    return "out_of_memory" if lacking else "step_failed", str(error)[:500]


def _is_due(step: int, every: int) -> bool:
    return bool(every) and step % every == 0


def _load(run: Path, optimizer: InBackwardOptimizer) -> None:
    """The optimizer's state of the version that was put back."""
    folder = RunFolder(run)
    try:
        if (progress := folder.progress()) is None:
            raise Refused("state_damaged", "the run has no version to go on from")
        load_state(folder.state(progress.version), optimizer, progress.version)
    finally:
        folder.close()
