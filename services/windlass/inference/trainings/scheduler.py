"""The loop that has engines trained, and notes what became of it."""

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, replace

import grpc

from windlass.api.clusters.v1 import clusters_pb2
from windlass.api.clusters.v1.clusters_pb2_grpc import ClustersInternalServiceAsyncStub
from windlass.api.usage.v1 import usage_pb2
from windlass.api.usage.v1.usage_pb2_grpc import UsageInternalServiceAsyncStub
from windlass.core import telemetry
from windlass.core.errors import AppError, FailedPrecondition, InvalidArgument, NotFound, from_rpc
from windlass.core.ids import new_name
from windlass.core.objects import ObjectStoreError
from windlass.inference.domain import Engine, Rows, View
from windlass.inference.observed_state import ObservedState
from windlass.inference.store import InferenceStore
from windlass.inference.trainings.checkpoints import CheckpointModels
from windlass.inference.trainings.store import EngineTrainingStore
from windlass.inference.trainings.training import (
    CANCELLED,
    FAILED,
    RUNNING,
    SUCCEEDED,
    UNSAID,
    EngineTraining,
    ended_as,
    kept_steps,
    new_steps,
)
from windlass.inference.trainings.workload import TrainingWorkloads

log = telemetry.logger("inference")
# What an engine has learned is saved so long after its last training.
SAVE_SECONDS = 600.0
_STATUS = 200
# The end of the names of checkpoints that nobody asked for.
AUTOMATIC = "auto"


@dataclass(frozen=True)
class _Look:
    """Everything as it was at one moment."""

    now: float
    rows: Rows
    view: View

    def engine_of(self, version_id: str) -> Engine | None:
        """The engine of a version that may be trained, wherever it stands."""
        own = (one for one in self.rows.running if one.version_id == version_id and one.training)
        return next(own, None)

    def is_trainable(self, engine: Engine) -> bool:
        """True for an engine that says that it can be trained now."""
        status = self.view.status(engine)
        return status.phase == clusters_pb2.PHASE_RUNNING and status.capabilities.training

    def may_be_trained(self, version_id: str) -> bool:
        """True while a serving says so."""
        return any(one.version_id == version_id and one.training for one in self.rows.servings)


class EngineTrainingScheduler:
    """Level-triggered: any number may run at once, as a generation is the same whoever tells it.

    An engine does one thing at a time, in the order in which it was asked for.
    """

    def __init__(
        self,
        trainings: EngineTrainingStore,
        engines: InferenceStore,
        observed: ObservedState,
        clusters: ClustersInternalServiceAsyncStub,
        usage: UsageInternalServiceAsyncStub,
        workloads: TrainingWorkloads,
        checkpoints: CheckpointModels,
        *,
        url_seconds: float,
    ):
        self._trainings = trainings
        self._engines = engines
        self._observed = observed
        self._clusters = clusters
        self._usage = usage
        self._workloads = workloads
        self._checkpoints = checkpoints
        self._url_seconds = url_seconds
        # Checkpoints whose files are compared now.
        self._naming: dict[str, asyncio.Task[None]] = {}

    async def once(self) -> bool:
        """Runs one round; does nothing until everything was heard once."""
        now, unsettled = await self._trainings.unsettled()
        unsaved = await self._trainings.unsaved()
        if not unsettled and not unsaved:
            return False
        rows = await self._engines.rows()
        if (view := await self._observed.view(rows)) is None:
            return False
        look = _Look(now, rows, view)
        waiting: set[str] = set()
        for training in unsettled:
            if training.is_open:
                await self._step(training, look, is_first=training.version_id not in waiting)
                waiting.add(training.version_id)
            elif training.engine_id and training.put_generation < training.generation:
                await self._tell(training, look)
        await self._count([one for one in unsettled if _owes(one)])
        await self._save([one for one in unsaved if one.version_id not in waiting], look)
        return False

    async def _step(self, training: EngineTraining, look: _Look, *, is_first: bool) -> None:
        """Takes one step of an open training; the next round takes the next."""
        if training.engine_id:
            await self._follow(training, look)
        elif training.is_cancelled:
            await self._trainings.finish(training, CANCELLED)
        elif not look.may_be_trained(training.version_id) and not training.is_checkpoint:
            words = "The model's serving does not let its engine be trained any more."
            await self._finish(training, FAILED, "training_not_enabled", words)
        elif is_first:
            await self._place(training, look)

    async def _place(self, training: EngineTraining, look: _Look) -> None:
        engine = look.engine_of(training.version_id)
        if engine is None and training.is_checkpoint:
            words = "No engine of the model runs that has learned anything."
            await self._finish(training, FAILED, "EngineEnded", words)
        elif engine is not None and look.is_trainable(engine):
            await self._trainings.change(
                training, engine_id=engine.id, cluster_id=engine.cluster_id, message=""
            )
            await self._tell(
                replace(training, engine_id=engine.id, cluster_id=engine.cluster_id), look
            )
        else:
            words = "Waiting for the engine."
            if engine is not None and engine.error:
                words = engine.error
            if words != training.message:
                await self._trainings.change(training, message=words)

    async def _follow(self, training: EngineTraining, look: _Look) -> None:
        if training.put_generation < training.generation:
            await self._tell(training, look)
        status = look.view.statuses.get(training.id)
        is_there = any(one.id == training.engine_id for one in look.rows.running)
        if status is not None and status.generation:
            if status.training.deltas and training.is_checkpoint and not training.deltas:
                await self._offer(training, status.training, look)
            steps = new_steps(training, status.training)
            if status.phase == clusters_pb2.PHASE_RUNNING and (steps or training.state != RUNNING):
                await self._trainings.progress(training, steps)
            elif end := ended_as(status):
                if steps:
                    await self._trainings.progress(training, steps)
                    return
                state, reason, message = end
                if state == CANCELLED and not training.is_cancelled:
                    state, message = FAILED, message or "The cluster ended it."
                await self._end(training, status, state, reason, message)
                return
        if not is_there:
            words = f"The engine ended after step {training.steps}."
            await self._finish(training, FAILED, "EngineEnded", words)
        elif look.now - training.urls_at > self._url_seconds:
            values = {"urls_at": look.now, "generation": training.generation + 1}
            await self._trainings.change(training, **values)

    async def _offer(
        self, training: EngineTraining, said: clusters_pb2.EngineTrainingStatus, look: _Look
    ) -> None:
        """Has the agent told where to put the deltas that it has; what it says once, it says."""
        try:
            deltas = await self._workloads.announced(training, said.deltas)
        except NotFound as error:
            await self._finish(training, FAILED, error.reason, error.message)
            return
        if deltas:
            values = {"deltas": deltas, "urls_at": look.now, "generation": training.generation + 1}
            await self._trainings.change(training, **values)

    async def _end(
        self,
        training: EngineTraining,
        status: clusters_pb2.WorkloadStatus,
        state: str,
        reason: str,
        message: str,
    ) -> None:
        if state == SUCCEEDED and training.output_bytes:
            await self._finish_pass(training)
        elif state != SUCCEEDED or not training.is_checkpoint:
            kept = kept_steps(training, status.training)
            await self._finish(training, state, reason, message, kept)
        elif training.id not in self._naming:
            digests = {one.path: one.sha256 for one in status.training.files}
            task = asyncio.create_task(self._name(training, digests))
            self._naming[training.id] = task
            task.add_done_callback(lambda _: self._naming.pop(training.id, None))

    async def _finish_pass(self, training: EngineTraining) -> None:
        """Keeps what a forward pass computed; what fails for now is tried again."""
        try:
            outputs = await self._workloads.outputs(training)
        except ObjectStoreError as error:
            log.warning("outputs_not_read", training=training.id, error=str(error))
            return
        if outputs is None:
            words = "The engine put another number of outputs than the targets have."
            await self._finish(training, FAILED, "upload_mismatch", words)
        else:
            await self._trainings.finish(training, SUCCEEDED, outputs=outputs)

    async def _name(self, training: EngineTraining, digests: dict[str, bytes]) -> None:
        """Makes a checkpoint a model; what fails for now is tried again in the next round."""
        try:
            named = await self._checkpoints.register(training, digests)
        except (FailedPrecondition, InvalidArgument, NotFound) as error:
            await self._finish(training, FAILED, error.reason, error.message)
        except (AppError, ObjectStoreError, grpc.aio.AioRpcError) as error:
            log.warning("checkpoint_not_named", training=training.id, error=str(error))
        else:
            await self._trainings.finish(
                training,
                SUCCEEDED,
                checkpoint_model=named.model,
                weight_bytes=named.weight_bytes,
                uploaded_bytes=named.uploaded_bytes,
            )

    async def _finish(
        self,
        training: EngineTraining,
        state: str,
        reason: str,
        message: str,
        kept: int | None = None,
    ) -> None:
        said = {"reason": reason, "message": message, "kept_steps": kept}
        await self._trainings.finish(training, state, **said)

    async def _tell(self, training: EngineTraining, look: _Look) -> None:
        """Says it to the cluster; what fails is tried again in the next round."""
        try:
            workload = await self._workloads.make(training, look.view)
            await self._clusters.PutWorkload(clusters_pb2.PutWorkloadRequest(workload=workload))
            if not training.is_open:
                await self._workloads.forget(training)
        except NotFound as error:
            await self._finish(training, FAILED, error.reason, error.message)
        except ObjectStoreError as error:
            log.warning("training_not_told", training=training.id, error=str(error))
        except grpc.aio.AioRpcError as error:
            refusal = from_rpc(error)
            if isinstance(refusal, NotFound) and training.is_open:
                await self._finish(training, FAILED, refusal.reason, refusal.message)
            elif isinstance(refusal, NotFound):
                # Nobody is left to be told.
                await self._trainings.change(training, put_generation=training.generation)
            elif refusal.reason != "stale_generation":
                log.warning("training_not_told", training=training.id, error=refusal.message)
        else:
            await self._trainings.change(training, put_generation=training.generation)

    async def _count(self, owing: list[EngineTraining]) -> None:
        """Tells the usage service what was trained: at least once, which ids make once."""
        if not owing:
            return
        records = [
            usage_pb2.UsageRecord(
                id=one.id,
                at_ms=int(one.finished_at * 1000),
                organization_id=one.organization_id,
                project_id=one.project_id,
                user_id=one.user_id,
                key_id=one.key_id,
                model=one.model,
                kind=usage_pb2.USAGE_KIND_TRAINING,
                input_tokens=one.trained_tokens,
                status=_STATUS,
            )
            for one in owing
        ]
        try:
            await self._usage.Record(usage_pb2.RecordRequest(records=records))
        except grpc.aio.AioRpcError as error:
            log.warning("trainings_not_counted", error=error.details())
            return
        await self._trainings.count([one.id for one in owing])

    async def _save(self, unsaved: Iterable[EngineTraining], look: _Look) -> None:
        """Asks for checkpoints of engines that are at rest, or that should end."""
        lost = []
        for last in unsaved:
            if all(one.id != last.engine_id for one in look.rows.running):
                lost.append(last.engine_id)
                continue
            rests = look.now - last.finished_at > SAVE_SECONDS
            if rests or not look.may_be_trained(last.version_id):
                await self._trainings.create(_automatic(last))
        if lost:
            await self._trainings.lose(lost)


def _owes(training: EngineTraining) -> bool:
    return not training.is_open and training.steps > 0 and not training.is_counted


def _automatic(last: EngineTraining) -> EngineTraining:
    """The checkpoint of what an engine has learned; one for each last training."""
    return EngineTraining(
        id=new_name("ckpt-"),
        organization_id=last.organization_id,
        project_id=last.project_id,
        user_id=last.user_id,
        key_id=last.key_id,
        model=last.model,
        version_id=last.version_id,
        suffix=AUTOMATIC,
        idempotency_key=f"{UNSAID}after {last.id}",
    )
