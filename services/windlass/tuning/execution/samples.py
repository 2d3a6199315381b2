"""Carries out what samplers are asked."""

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

from windlass.api.tuning.v1 import tuning_pb2 as pb
from windlass.core import telemetry
from windlass.core.errors import InvalidArgument, NotFound
from windlass.core.objects import ObjectNotFound, ObjectStoreError
from windlass.tuning.blobs import Blobs
from windlass.tuning.domain import (
    REPLICAS,
    Reader,
    cluster_choice,
    count_option,
    in_engine,
    parse_path,
)
from windlass.tuning.execution.conversion import (
    failed_result,
    failed_with,
    sample_request,
    samples_result,
)
from windlass.tuning.execution.counting import spent_on_samples
from windlass.tuning.execution.folders import CheckpointFolders, is_model
from windlass.tuning.in_engine.models import engine_model
from windlass.tuning.inbox import DueOperation
from windlass.tuning.samplers import ChosenSampler
from windlass.tuning.storage.checkpoints import WeightsStore, prefix_of
from windlass.tuning.storage.execution import ExecutionStore, Row
from windlass.tuning.storage.outcomes import Spent
from windlass.tuning.storage.sessions import TuningSessionStore
from windlass.tuning_api.trainers.port import Trainer, TrainerLost
from windlass.tuning_api.trainers.records import OperationFailed, SampleRequest, Samples
from windlass.tuning_api.trainers.seats import SeatAwaited, SeatRefused

log = telemetry.logger("tuning")
LOST = "The sampler was lost; ask again."
# That a prompt waits for room on a device.
ROOM_SECONDS = 900.0
# In place of a sampler's id, where the request names a model or a checkpoint.
NO_SAMPLER = "-"


class SampleWorker:
    """Continues prompts by the weights that their requests are pinned to."""

    def __init__(
        self,
        store: ExecutionStore,
        sessions: TuningSessionStore,
        checkpoints: WeightsStore,
        trainer: Trainer,
        sampler: ChosenSampler,
        blobs: Blobs,
        folders: CheckpointFolders,
    ):
        self._store = store
        self._sessions = sessions
        self._checkpoints = checkpoints
        self._trainer = trainer
        self._sampler = sampler
        self._blobs = blobs
        self._folders = folders
        self._models = {model.name: model for model in trainer.base_models}
        # Sessions that may have a sampler of their own here.
        self._sessions_sampled: set[str] = set()

    async def let_go(self, *, silent_before: int) -> None:
        """Ends samplers, and removes what they read, of sessions whose runs ended before."""
        if sampled := tuple(self._sessions_sampled):
            live = await self._store.live(sampled, silent_before)
            for session_id in set(sampled) - live:
                self._sessions_sampled.discard(session_id)
                await self._trainer.close(session_id)
                await self._folders.forget(session_id)

    async def work(self, operation: DueOperation) -> tuple[pb.Result, str, Spent | None]:
        """The result of one request, the model that answered, and what that took."""
        if (run := await self._run_in_engine(operation)) is not None:
            return await self._sampled_in_engine(run, operation), run.base_model, None
        return await self._sampled(operation)

    async def _sampled(self, operation: DueOperation) -> tuple[pb.Result, str, Spent | None]:
        content = await self._blobs.get(operation.body, operation.body_key)
        wish = pb.OperationBody.FromString(content).sampling
        base_model = ""
        try:
            base_model, checkpoint_id, owner = await self._pinned(operation, wish)
            model = self._models.get(base_model)
            if model is None:
                message = "The base model is no longer here."
                return failed_with(message, "unknown_base_model"), base_model, None
            # Nobody else's prompts are continued where a session's own model is.
            session_id = operation.sampler_id.partition(":")[0]
            async with self._adapter(owner, checkpoint_id, session_id) as adapter:
                asked = sample_request(wish, model, adapter, operation.project_id)
                if adapter is not None and is_model(adapter):
                    asked = await self._own(asked, operation.project_id, session_id)
                answer = await self._answer(asked)
        except (InvalidArgument, NotFound) as error:
            return failed_with(error.message, error.reason, "user"), base_model, None
        except ObjectNotFound:
            gone = failed_with("The checkpoint's content is gone.", "checkpoint_lost")
            return gone, base_model, None
        except SeatRefused as error:
            return failed_with(str(error), "does_not_fit"), base_model, None
        except TrainerLost:
            return failed_with(LOST, "trainer_lost"), base_model, None
        except ObjectStoreError:
            raise
        except Exception as error:
            log.error("sampler_failed", operation_id=operation.id, exc_info=error)
            return failed_with(LOST, "trainer_lost"), base_model, None
        if isinstance(answer, OperationFailed):
            return failed_result(answer), base_model, None
        return samples_result(answer), base_model, spent_on_samples(asked, answer)

    async def _run_in_engine(self, operation: DueOperation) -> Row | None:
        """The run whose engine the asked sampler is; None for every other sampler."""
        if operation.sampler_id == NO_SAMPLER:
            return None
        try:
            sampler = await self._sessions.sampler(operation.project_id, operation.sampler_id)
        except NotFound:
            return None
        if not sampler.run_id:
            return None
        run = await self._store.run(sampler.run_id)
        return run if in_engine(run.user_metadata) else None

    async def _sampled_in_engine(self, run: Row, operation: DueOperation) -> pb.Result:
        """Samples of a run's engine, which the gateway counts."""
        if run.state != "active":
            return failed_with("The run whose engine this sampled has ended.", "run_ended", "user")
        content = await self._blobs.get(operation.body, operation.body_key)
        wish = pb.OperationBody.FromString(content).sampling
        try:
            if not wish.max_tokens:
                raise InvalidArgument("max_tokens must be set for an engine.", param="max_tokens")
            asked = sample_request(wish, engine_model(run.base_model), None, operation.project_id)
            answer = await self._sampler.sample_engine(operation.organization_id, asked)
        except InvalidArgument as error:
            return failed_with(error.message, error.reason, "user")
        except (TrainerLost, TimeoutError) as error:
            log.warning("engine_not_sampled", operation_id=operation.id, error=str(error))
            return failed_with(LOST, "trainer_lost")
        if isinstance(answer, OperationFailed):
            return failed_result(answer)
        return samples_result(answer)

    async def _answer(self, asked: SampleRequest) -> Samples | OperationFailed:
        """The sampler's answer, once there is room for it; raises TrainerLost."""
        began = time.monotonic()
        while True:
            try:
                return await self._sampler.sample(asked)
            except SeatAwaited:
                if time.monotonic() - began > ROOM_SECONDS:
                    raise

    async def _pinned(self, operation: DueOperation, wish: pb.Sampling) -> tuple[str, str, str]:
        """The model of a request, its checkpoint and whose that is; raises NotFound."""
        reader = Reader(operation.organization_id, operation.project_id)
        if operation.sampler_id == NO_SAMPLER:
            if not wish.path:
                return wish.base_model, "", ""
            found = await self._checkpoints.find(reader, parse_path(wish.path))
            return found.base_model, found.id, found.project_id
        sampler = await self._sessions.sampler(operation.project_id, operation.sampler_id)
        checkpoint_id, owner = sampler.checkpoint_id, operation.project_id
        if sampler.run_id:
            checkpoint_id = await self._store.inflight(sampler)
        elif sampler.path:
            # Another project's may have been taken back.
            owner = await self._checkpoints.owner(reader, checkpoint_id, sampler.path)
        return sampler.base_model, checkpoint_id, owner

    async def _own(self, asked: SampleRequest, project_id: str, session_id: str) -> SampleRequest:
        """The request for samplers of its session, or its project; raises NotFound."""
        if session_id == NO_SAMPLER:
            return replace(asked, session_id=project_id)
        session = await self._sessions.get(project_id, session_id)
        self._sessions_sampled.add(session_id)
        return replace(
            asked,
            session_id=session_id,
            replicas=max(count_option(session.user_metadata, REPLICAS), 1),
            cluster=cluster_choice(session.user_metadata),
        )

    @asynccontextmanager
    async def _adapter(
        self, project_id: str, checkpoint_id: str, session_id: str
    ) -> AsyncIterator[Path | None]:
        if not checkpoint_id:
            yield None
            return
        prefix = prefix_of(project_id, checkpoint_id)
        async with self._folders.kept(checkpoint_id, prefix, session_id) as folder:
            yield folder
