"""The trainer of runs in engines: what it computes, the engine computes in its own memory.

A forward pass changes nothing. Its datums wait here for the step, which computes their gradients at
the same weights: nobody else trains an engine that a run holds, and the engine refuses a step
whose weights are no longer those that its run has left.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import grpc

from windlass.api.inference.v1 import inference_pb2 as pb
from windlass.api.inference.v1.inference_pb2_grpc import InferenceInternalServiceAsyncStub
from windlass.core import telemetry
from windlass.core.errors import (
    AlreadyExists,
    AppError,
    FailedPrecondition,
    InvalidArgument,
    NotFound,
    from_rpc,
)
from windlass.tuning.in_engine.computing import adam_step, computation, losses_of
from windlass.tuning_api.trainers.port import RunNotOpen, TrainerLost
from windlass.tuning_api.trainers.records import (
    Datum,
    FailureCategory,
    ForwardBackward,
    Operation,
    OperationFailed,
    OptimStep,
    Outcome,
    Run,
    SampleRequest,
    Samples,
    Stepped,
    TrainableModel,
)
from windlass.tuning_api.trainers.seats import SeatAwaited

T = TypeVar("T")
log = telemetry.logger("tuning.engines")
RENEW_SECONDS = 15.0
WAIT_SECONDS = 20.0
CALL_SECONDS = 60.0
# That the inference service may be away.
PATIENCE_SECONDS = 120.0
_PAUSE_SECONDS = 0.5
_REFUSALS = (AlreadyExists, FailedPrecondition, InvalidArgument, NotFound)
# Whoever sent the datums can do something about these.
_USERS = frozenset({"invalid_request", "non_finite_loss", "non_finite_gradient"})
# The weights that the run has left may be these no more.
_LOSSES = frozenset({
    "EngineEnded", "EngineRestarted", "state_lost", "state_foreign", "state_damaged", "worker_died",
    "training_not_enabled", "model_not_found", "engine_held",
})  # fmt: skip
SAVES = (
    "A run in an engine has no checkpoints of its own: `windlass engines checkpoint {model}` makes "
    "the engine's weights a model."
)


@dataclass
class _OpenRun:
    run: Run
    # Datums of the passes since the last step, which have one loss and its settings.
    datums: list[Datum] = field(default_factory=list)
    loss: str = ""
    config: dict[str, float] = field(default_factory=dict)
    # What every operation hears once the run cannot go on.
    lost: OperationFailed | None = None
    holding: asyncio.Task[None] | None = None


class EngineTrainer:
    """Implements `Trainer` for runs whose model is a served one of their project."""

    base_models: Sequence[TrainableModel] = ()

    def __init__(self, inference: InferenceInternalServiceAsyncStub):
        self._inference = inference
        self._runs: dict[str, _OpenRun] = {}

    def holds(self, run_id: str) -> bool:
        """Returns True for a run that is open here."""
        return run_id in self._runs

    async def open(self, run: Run) -> None:
        """Holds the engine for the run; a refusal is what its operations hear."""
        if run.id in self._runs:
            return
        opened = _OpenRun(run)
        await self._hold(opened)
        self._runs[run.id] = opened
        if opened.lost is None:
            opened.holding = asyncio.create_task(self._keep(opened), name=f"engine of {run.id}")

    async def execute(self, run_id: str, operations: Sequence[Operation]) -> Sequence[Outcome]:
        """Has the engine compute, one operation after the other."""
        opened = self._runs.get(run_id)
        if opened is None:
            raise RunNotOpen(run_id)
        return [await self._outcome(opened, one) for one in operations]

    async def sample(self, request: SampleRequest) -> Samples | OperationFailed:
        """Refuses: engines sample by the gateway."""
        raise TrainerLost("engines are not sampled here")

    async def close(self, run_id: str) -> None:
        """Gives the engine back; what it has learned stays in it."""
        opened = self._runs.pop(run_id, None)
        if opened is not None:
            await self._let_go(opened)

    async def stop(self) -> None:
        """Gives every engine back."""
        await asyncio.gather(*(self.close(one) for one in tuple(self._runs)))

    async def _outcome(self, opened: _OpenRun, asked: Operation) -> Outcome:
        if opened.lost is not None:
            return opened.lost
        try:
            if isinstance(asked, ForwardBackward):
                return await self._forward(opened, asked)
            if isinstance(asked, OptimStep):
                return await self._step(opened, asked)
        except InvalidArgument as error:
            return OperationFailed(error.message, error.reason)
        return OperationFailed(SAVES.format(model=opened.run.base_model), "not_in_engine")

    async def _forward(self, opened: _OpenRun, asked: ForwardBackward) -> Outcome:
        config = _numbers(asked)
        is_other = bool(opened.datums) and (asked.loss, config) != (opened.loss, opened.config)
        if is_other and not asked.is_forward_only:
            raise InvalidArgument(
                "A step in an engine has one loss with one configuration: what was computed since "
                f"the last optim_step has {opened.loss}.",
                reason="several_losses",
            )
        request = computation(opened.run, asked.operation_id, asked.data, asked.loss, config)
        answer = await self._computed(opened, request)
        if isinstance(answer, OperationFailed):
            return answer
        try:
            losses = losses_of(answer.outputs, asked.data)
        except ValueError as error:
            return OperationFailed(f"{error}.", "loss_not_finite")
        if not asked.is_forward_only:
            opened.datums += asked.data
            opened.loss, opened.config = asked.loss, config
        return losses

    async def _step(self, opened: _OpenRun, asked: OptimStep) -> Outcome:
        if not opened.datums:
            raise InvalidArgument(
                "Nothing was computed since the last optim_step.", reason="no_gradients"
            )
        request = computation(
            opened.run, asked.operation_id, opened.datums, opened.loss, opened.config
        )
        request.step.CopyFrom(adam_step(asked))
        answer = await self._computed(opened, request)
        if isinstance(answer, OperationFailed):
            return answer
        opened.datums = []
        return Stepped({"step:max": float(answer.steps), "loss:sum": answer.loss})

    async def _computed(
        self, opened: _OpenRun, request: pb.ComputeInEngineRequest
    ) -> pb.EngineComputation | OperationFailed:
        """Returns what the engine computed; a failure after which the run cannot go on loses it.

        Raises InvalidArgument, TrainerLost, SeatAwaited while no engine has it.
        """
        request.wait_seconds = WAIT_SECONDS
        while opened.lost is None:
            try:
                answer = await self._patiently(
                    lambda: self._inference.ComputeInEngine(request, timeout=CALL_SECONDS)
                )
            except (FailedPrecondition, NotFound, AlreadyExists) as error:
                return await self._lose(opened, error.message, error.reason)
            if answer.state == pb.ENGINE_TRAINING_STATE_QUEUED:
                # It may take minutes until the engine is there: the run is taken up again.
                self._set_aside(opened)
                raise SeatAwaited(answer.message or "The engine is about to compute it.")
            if answer.state == pb.ENGINE_TRAINING_STATE_RUNNING:
                continue
            if answer.state == pb.ENGINE_TRAINING_STATE_SUCCEEDED:
                return answer
            words = answer.message or "The engine did not compute it."
            if answer.reason in _LOSSES:
                return await self._lose(opened, words, answer.reason)
            side = FailureCategory.USER if answer.reason in _USERS else FailureCategory.SERVER
            return OperationFailed(words, answer.reason or "cancelled", side)
        return opened.lost

    async def _hold(self, opened: _OpenRun) -> None:
        run = opened.run
        request = pb.HoldEngineRequest(
            project_id=run.project_id, model=run.base_model, run_id=run.id
        )
        try:
            await self._patiently(lambda: self._inference.HoldEngine(request))
        except _REFUSALS as error:
            await self._lose(opened, error.message, error.reason)

    async def _keep(self, opened: _OpenRun) -> None:
        while opened.lost is None:
            await asyncio.sleep(RENEW_SECONDS)
            try:
                await self._hold(opened)
            except TrainerLost as error:
                log.warning("engine_not_held", run_id=opened.run.id, error=str(error))

    async def _lose(self, opened: _OpenRun, message: str, reason: str) -> OperationFailed:
        """Ends what the run may ask: its weights are not there any more, or not its own."""
        log.warning("engine_lost", run_id=opened.run.id, reason=reason, message=message)
        words = f"The run's engine is lost, and with it what no checkpoint had: {message}"
        opened.lost = OperationFailed(words, "engine_lost", FailureCategory.SERVER)
        if opened.holding is not asyncio.current_task():
            await self._let_go(opened)
        return opened.lost

    def _set_aside(self, opened: _OpenRun) -> None:
        """Forgets a run, which has its engine for as long as it takes to open it again."""
        self._runs.pop(opened.run.id, None)
        if opened.holding is not None:
            opened.holding.cancel()

    async def _let_go(self, opened: _OpenRun) -> None:
        if opened.holding is not None:
            opened.holding.cancel()
        request = pb.ReleaseEngineRequest(project_id=opened.run.project_id, run_id=opened.run.id)
        try:
            await self._inference.ReleaseEngine(request)
        except grpc.aio.AioRpcError as error:
            # It is free by itself when nobody keeps it.
            log.warning("engine_not_released", run_id=opened.run.id, error=error.details())

    async def _patiently(self, call: Callable[[], Awaitable[T]]) -> T:
        """Returns what a repeatable call does; raises its refusal, TrainerLost when all is away."""
        loop = asyncio.get_running_loop()
        until = loop.time() + PATIENCE_SECONDS
        while True:
            try:
                return await call()
            except grpc.aio.AioRpcError as error:
                refusal: AppError = from_rpc(error)
                if isinstance(refusal, _REFUSALS):
                    raise refusal from error
                if loop.time() > until:
                    raise TrainerLost(refusal.message) from error
            await asyncio.sleep(_PAUSE_SECONDS)


def _numbers(asked: ForwardBackward) -> dict[str, float]:
    found = {}
    for name, value in asked.config.items():
        if isinstance(value, str):
            if asked.loss == "custom":
                raise InvalidArgument(
                    "Custom losses are computed by the tuning service, and not in an engine.",
                    reason="not_in_engine",
                )
            raise InvalidArgument(f"{name[:64]} must be a number.")
        found[name] = value
    return found
