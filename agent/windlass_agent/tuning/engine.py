"""The engine: many tenants' runs on one base model, a pass at a time."""

import threading
import time
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import replace
from itertools import chain
from typing import Any

from windlass.core import telemetry
from windlass_agent.tuning.computing import Computed, PassPart, compute
from windlass_agent.tuning.endings import RunClosed, end, refusal
from windlass_agent.tuning.losses.inputs import check_loss
from windlass_agent.tuning.losses.metrics import metrics, own_metrics
from windlass_agent.tuning.network.adapter import adapted
from windlass_agent.tuning.network.base import BaseNetwork
from windlass_agent.tuning.optimizers.stepping import check_step
from windlass_agent.tuning.parking import ParkedTensors
from windlass_agent.tuning.requests.limits import TuningLimits
from windlass_agent.tuning.requests.operations import (
    Barrier,
    ComputeLoss,
    LossResult,
    Operation,
    OperationResult,
    RunSpec,
    StepOptimizer,
    StepResult,
)
from windlass_agent.tuning.requests.prompts import Continuations, PromptRequest, check_prompt
from windlass_agent.tuning.requests.refusal import TuningRefused
from windlass_agent.tuning.requests.specs import check_run
from windlass_agent.tuning.residency import Residency
from windlass_agent.tuning.runs import TuningRun
from windlass_agent.tuning.sampling.continuing import Decode
from windlass_agent.tuning.sampling.sampler import PromptSampler
from windlass_agent.tuning.scheduling.planning import PassPlanner
from windlass_agent.tuning.scheduling.queues import Portion, Ticket
from windlass_agent.tuning.state.record import RunState

log = telemetry.logger("tuning")


class TuningEngine:
    """Takes operations from any thread; one thread at a time calls `advance`, which does them."""

    def __init__(self, base: BaseNetwork, limits: TuningLimits, *, decode: Decode | None = None):
        self._base = base
        self._limits = limits
        self._context = min(base.context, limits.context or base.context)
        self._decode = decode
        self._runs: dict[str, TuningRun] = {}
        self._planner = PassPlanner(limits.pass_tokens, limits.resident_runs)
        self._residency = Residency(base.device, limits.resident_runs)
        self._closed: deque[TuningRun] = deque()
        self._sampler = PromptSampler(base, limits, decode)
        self._prompts: deque[tuple[PromptRequest, Future[Continuations]]] = deque()
        self._stopped = False
        self._parked: ParkedTensors | None = None
        self._lock = threading.Lock()

    def open(self, name: str, spec: RunSpec) -> None:
        """Makes a run with a new adapter; raises TuningRefused, RunClosed at the end."""
        check_run(spec, self._limits)
        if not adapted(spec.adapter, self._base.layers):
            raise TuningRefused("no_targets", "the base has no layers of these targets")
        run = TuningRun(spec, self._base)
        with self._lock:
            self._check_open()
            if name in self._runs:
                raise TuningRefused("run_exists", "the run is open already")
            if len(self._runs) >= self._limits.runs:
                raise TuningRefused("too_many_runs", f"the engine holds {self._limits.runs} runs")
            self._runs[name] = run

    def close(self, name: str) -> None:
        """Forgets a run; what it still had to do ends with RunClosed."""
        with self._lock:
            run = self._runs.pop(name, None)
            left = [] if run is None else run.queue.drain()
            if run is not None:
                self._closed.append(run)
        for ticket in left:
            end(ticket.future, RunClosed("the run was closed"))

    def names(self) -> list[str]:
        """Returns the open runs."""
        with self._lock:
            return list(self._runs)

    def resident(self) -> list[str]:
        """Returns the open runs that lie on the device, the least recently used first."""
        with self._lock:
            names = {run: name for name, run in self._runs.items()}
            return [names[run] for run in self._residency.resident if run in names]

    def state(self, name: str) -> RunState:
        """Returns the state of an open run as it is now; its tensors are never written to."""
        with self._lock:
            return self._runs[name].state

    def submit(self, name: str, operation: Operation) -> "Future[Any]":
        """Queues an operation of a run; raises RunClosed, and TuningRefused for what is wrong.

        The future ends with an OperationResult, or with TuningRefused: then nothing has changed.
        """
        operation = self._checked(operation)
        ticket = Ticket(operation)
        with self._lock:
            run = self._runs.get(name)
            if run is None:
                raise RunClosed("there is no such run")
            if len(run.queue) >= self._limits.queued_operations:
                message = f"{self._limits.queued_operations} operations of the run wait"
                raise TuningRefused("queue_full", message)
            run.queue.append(ticket)
        return ticket.future

    def sample(self, request: PromptRequest) -> "Future[Continuations]":
        """Queues a prompt; raises TuningRefused for a bad one, RunClosed at the end."""
        check_prompt(request, self._base.vocabulary, self._context, self._limits)
        if request.stop_strings and self._decode is None:
            raise TuningRefused("no_tokenizer", "stops are tokens here: the base has no tokenizer")
        future: Future[Continuations] = Future()
        with self._lock:
            self._check_open()
            if len(self._prompts) + self._sampler.waiting >= self._limits.queued_prompts:
                raise TuningRefused("queue_full", f"{self._limits.queued_prompts} prompts wait")
            self._prompts.append((request, future))
        return future

    def advance(self) -> bool:
        """Passes one barrier of each run, runs one pass and one turn of sampling.

        Returns False when nothing waited.
        """
        with self._lock:
            runs = dict(self._runs)
            for run in runs.values():
                run.abandon_ended()
            barriers = [
                (run, *found) for run in runs.values() if (found := run.queue.barrier()) is not None
            ]
            self._residency.forget([self._closed.popleft() for _ in range(len(self._closed))])
        for run, ticket, operation in barriers:
            end(ticket.future, self._passed(run, operation))
        with self._lock:
            planned = self._planner.plan(runs)
        if planned:
            self._run_pass(
                [(runs[name], portion) for name, found in planned.items() for portion in found]
            )
        while self._prompts:
            self._sampler.add(*self._prompts.popleft())
        sampled = self._sampler.advance()
        return bool(barriers or planned or sampled)

    def park(self) -> int:
        """Moves all that lies on the device to the host; returns its bytes.

        Nothing may be on its way, and nobody calls `advance` before `restore`.
        """
        if self._parked is None:
            self._sampler.forget()
            with self._lock:
                runs = list(self._runs.values())
            tensors = chain(self._base.tensors(), *(run.tensors() for run in runs))
            device = self._base.device
            self._parked = ParkedTensors(one for one in tensors if one.device == device)
        return self._parked.size

    def restore(self) -> None:
        """Moves everything back to the device; what is not parked stays there."""
        if self._parked is not None:
            self._parked.restore()
            self._parked = None

    def stop(self) -> None:
        """Closes every run for good, and ends what waits; nobody calls `advance` any more."""
        with self._lock:
            self._stopped = True
        for name in self.names():
            self.close(name)
        left = [*self._sampler.drain(), *(future for _, future in self._prompts)]
        self._prompts.clear()
        for future in left:
            end(future, RunClosed("the engine stopped"))

    def _check_open(self) -> None:
        if self._stopped:
            raise RunClosed("the engine stopped")

    def _checked(self, operation: Operation) -> Operation:
        if isinstance(operation, ComputeLoss):
            settings = check_loss(operation, self._base.vocabulary, self._context, self._limits)
            return ComputeLoss(
                examples=tuple(operation.examples),
                loss=operation.loss,
                settings=settings,
                learns=operation.learns,
                document=operation.document,
            )
        if isinstance(operation, StepOptimizer):
            check_step(operation)
        return operation

    def _passed(self, run: TuningRun, operation: Barrier) -> OperationResult | TuningRefused:
        try:
            self._residency.use([run])
            began = time.perf_counter()
            result = run.pass_barrier(operation)
            if isinstance(result, StepResult):
                return replace(result, device_seconds=time.perf_counter() - began)
            return result
        except Exception as error:
            return refusal(error)

    def _run_pass(self, planned: Sequence[tuple[TuningRun, Portion]]) -> None:
        began = time.perf_counter()
        try:
            outcomes = self._computed(planned)
        except Exception:
            # Whoever made it fail is found by giving each a pass of its own.
            log.warning("pass_failed", operations=len(planned), exc_info=True)
            outcomes = [self._alone(run, portion) for run, portion in planned]
        _charge([portion for _, portion in planned], time.perf_counter() - began)
        for (run, portion), outcome in zip(planned, outcomes, strict=True):
            self._apply(run, portion.ticket, outcome)

    def _computed(
        self, planned: Sequence[tuple[TuningRun, Portion]]
    ) -> list[Computed | TuningRefused]:
        self._residency.use(run for run, _ in planned)
        return compute(self._base, [_part(run, portion) for run, portion in planned])

    def _alone(self, run: TuningRun, portion: Portion) -> Computed | TuningRefused:
        try:
            return self._computed([(run, portion)])[0]
        except Exception as error:
            return refusal(error)

    def _apply(self, run: TuningRun, ticket: Ticket, outcome: Computed | TuningRefused) -> None:
        operation = ticket.operation
        assert isinstance(operation, ComputeLoss)  # noqa: S101  # the planner takes no other
        result: object = outcome
        if isinstance(outcome, TuningRefused) or ticket.future.done():
            run.abandon(ticket)
        else:
            run.fold(ticket, outcome)
            if ticket.begun < len(operation.examples):
                return
            result = _result(operation, run.finish(ticket), ticket.device_seconds)
        with self._lock:
            run.queue.close(ticket)
        end(ticket.future, result)


def _part(run: TuningRun, portion: Portion) -> PassPart:
    operation = portion.ticket.operation
    assert isinstance(operation, ComputeLoss)  # noqa: S101  # the planner takes no other
    return PassPart(
        examples=[operation.examples[place] for place in portion.places],
        loss=operation.loss,
        settings=operation.settings,
        learns=operation.learns,
        document=operation.document,
        tensors=run.state.weights,
        scale=run.state.scale,
    )


def _charge(portions: Sequence[Portion], seconds: float) -> None:
    """Shares the time of a pass among those that were in it, by their tokens."""
    tokens = [
        sum(len(portion.ticket.operation.examples[place].tokens) for place in portion.places)
        for portion in portions
        if isinstance(portion.ticket.operation, ComputeLoss)
    ]
    for portion, own in zip(portions, tokens, strict=True):
        portion.ticket.device_seconds += seconds * own / sum(tokens)


def _result(
    operation: ComputeLoss, computed: Sequence[Computed], device_seconds: float
) -> LossResult:
    losses = [loss for one in computed for loss in one.losses]
    logprobs = [values for one in computed for values in one.logprobs]
    own = own_metrics([values for one in computed for values in one.own_metrics])
    return LossResult(
        logprobs=logprobs,
        metrics=own | metrics(losses, logprobs, operation.examples, operation.settings),
        device_seconds=device_seconds,
    )
