"""Requests that train engines, make checkpoints of them, and look at both."""

import asyncio
import re
from collections.abc import AsyncIterator

from windlass.api.inference.v1 import inference_pb2 as pb
from windlass.core.db.paging import cut, page_size
from windlass.core.db.wake import Wake
from windlass.core.errors import InvalidArgument
from windlass.core.ids import new_name
from windlass.core.rpc import audited
from windlass.core.rpc.auth import current
from windlass.inference.domain import Serving
from windlass.inference.trainings.holds import EngineHoldStore, engine_held
from windlass.inference.trainings.store import STEPS_AT_ONCE, EngineTrainingStore
from windlass.inference.trainings.trainable import TrainableServings
from windlass.inference.trainings.training import (
    EngineTraining,
    body_of,
    checked,
    digest_of,
    shown,
)

LOOK_SECONDS = 0.5
_KEY_LENGTH = 256
_SUFFIX = re.compile(r"(?!.*\.\.)[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


class EngineTrainingRequests:
    """The part of InferenceService that is about trainings of engines."""

    def __init__(
        self,
        trainings: EngineTrainingStore,
        servings: TrainableServings,
        holds: EngineHoldStore,
        wake: Wake,
    ):
        self._holds = holds
        self._trainings = trainings
        self._servings = servings
        self._wake = wake

    async def train(self, request: pb.CreateEngineTrainingRequest) -> pb.EngineTraining:
        """Stores a training; what follows from it can be looked at."""
        serving = await self._servings.of_caller(request.model)
        if await self._holds.holder(serving.version_id):
            raise engine_held(request.model)
        steps, tokens = checked(request, serving.training)
        identifier = new_name("train-")
        training = _new(
            identifier,
            serving,
            request,
            mode=serving.training,
            body=await asyncio.to_thread(body_of, request, identifier, serving.training),
            tokens=tokens,
            total_steps=steps,
        )
        return await self._create(training)

    async def checkpoint(self, request: pb.CreateEngineCheckpointRequest) -> pb.EngineTraining:
        """Stores the wish for a checkpoint."""
        if not _SUFFIX.fullmatch(request.suffix):
            raise InvalidArgument(
                "suffix must be at most 64 letters, digits, '.', '_' and '-', and begin with a "
                "letter or digit.",
                param="suffix",
            )
        serving = await self._servings.of_caller(request.model)
        identifier = new_name("ckpt-")
        return await self._create(_new(identifier, serving, request, suffix=request.suffix))

    async def get(self, request: pb.GetEngineTrainingRequest) -> pb.EngineTraining:
        """A training of the project; raises NotFound."""
        return shown(await self._trainings.get(current(), request.id))

    async def list(self, request: pb.ListEngineTrainingsRequest) -> pb.ListEngineTrainingsResponse:
        """The project's, newest first."""
        size = page_size(request.limit)
        found = await self._trainings.newest(
            current(), model=request.model, after=request.after, limit=size + 1
        )
        page, more = cut(found, size)
        return pb.ListEngineTrainingsResponse(trainings=map(shown, page), has_more=more)

    async def cancel(self, request: pb.CancelEngineTrainingRequest) -> pb.EngineTraining:
        """Has a training end at its next step."""
        caller = current()
        training = await self._trainings.get(caller, request.id)
        await self._trainings.cancel(training)
        audited.change(None, {"cancelled": True}, resource=training.id)
        self._wake.touch("inference")
        return shown(await self._trainings.get(caller, request.id))

    async def watch(
        self, request: pb.WatchEngineTrainingRequest
    ) -> AsyncIterator[pb.EngineTrainingProgress]:
        """Yields steps after a number until the training has ended."""
        caller, seen = current(), request.after
        before: EngineTraining | None = None
        while True:
            # Looked at first, so that no step comes after its end.
            training = await self._trainings.get(caller, request.id)
            steps = await self._trainings.steps_after(training, seen)
            seen = steps[-1].step if steps else seen
            is_last = not training.is_open and len(steps) < STEPS_AT_ONCE
            if steps or is_last or training != before:
                yield pb.EngineTrainingProgress(steps=steps, training=shown(training))
            if is_last:
                return
            before = training
            if len(steps) < STEPS_AT_ONCE:
                await asyncio.sleep(LOOK_SECONDS)

    async def _create(self, training: EngineTraining) -> pb.EngineTraining:
        key = training.idempotency_key or ""
        if len(key) > _KEY_LENGTH or not key.isprintable():
            raise InvalidArgument(
                f"idempotency_key must be at most {_KEY_LENGTH} printable characters.",
                param="idempotency_key",
            )
        found = await self._trainings.create(training)
        what = {"model": found.model, "total_steps": found.total_steps, "suffix": found.suffix}
        audited.change(None, what, resource=found.id)
        self._wake.touch("inference")
        return shown(found)


def _new(
    identifier: str,
    serving: Serving,
    request: pb.CreateEngineTrainingRequest | pb.CreateEngineCheckpointRequest,
    *,
    suffix: str = "",
    mode: str = "",
    body: bytes = b"",
    tokens: int = 0,
    total_steps: int = 0,
) -> EngineTraining:
    caller = current()
    return EngineTraining(
        id=identifier,
        organization_id=serving.organization_id,
        project_id=serving.project_id,
        user_id=caller.user_id,
        key_id=caller.key_id,
        model=serving.model,
        version_id=serving.version_id,
        suffix=suffix,
        mode=mode,
        idempotency_key=request.idempotency_key or None,
        digest=digest_of(request),
        body=body,
        tokens=tokens,
        total_steps=total_steps,
    )
