"""Requests of tuning's runs to engines that they hold: forward passes and single steps."""

import asyncio

from windlass.api.inference.v1 import inference_pb2 as pb
from windlass.api.models.v1 import models_pb2
from windlass.api.models.v1.models_pb2_grpc import ModelsInternalServiceAsyncStub
from windlass.core.db.wake import Wake
from windlass.core.errors import FailedPrecondition, NotFound
from windlass.core.ids import new_name
from windlass.inference.domain import Serving
from windlass.inference.servings.store import ServingStore
from windlass.inference.trainings.holds import EngineHold, EngineHoldStore
from windlass.inference.trainings.run_steps import body_of_computation, checked_computation
from windlass.inference.trainings.run_store import EngineRunStore
from windlass.inference.trainings.store import EngineTrainingStore
from windlass.inference.trainings.training import CANCELLED, EngineTraining, digest_of, state_of

LOOK_SECONDS = 0.1
MAX_WAIT_SECONDS = 25.0
# That a computation waits for an engine before it ends.
PLACE_SECONDS = 900.0
# Begins keys of what runs ask; a caller's is printable.
_KEY = "\x02"
_MODES = ("hogwild", "fenced")


class EngineRunRequests:
    """The part of InferenceInternalService that is for runs in engines."""

    def __init__(
        self,
        trainings: EngineTrainingStore,
        computations: EngineRunStore,
        holds: EngineHoldStore,
        servings: ServingStore,
        models: ModelsInternalServiceAsyncStub,
        wake: Wake,
    ):
        self._trainings = trainings
        self._computations = computations
        self._holds = holds
        self._servings = servings
        self._models = models
        self._wake = wake

    async def hold(self, request: pb.HoldEngineRequest) -> pb.HeldEngine:
        """Takes the engine of a project's model for a run, or keeps it.

        Raises NotFound for what is not the project's own, FailedPrecondition `engine_held` and
        `training_not_enabled`.
        """
        serving = await self._serving(request.project_id, request.model)
        hold = EngineHold(
            serving.version_id,
            serving.organization_id,
            request.project_id,
            request.model,
            request.run_id,
        )
        await self._holds.hold(hold)
        return pb.HeldEngine(mode=serving.training)

    async def release(self, request: pb.ReleaseEngineRequest) -> pb.ReleaseEngineResponse:
        """Gives a run's engine back, and forgets what old runs computed."""
        await self._holds.release(request.project_id, request.run_id)
        await self._computations.forget_old(request.project_id)
        return pb.ReleaseEngineResponse()

    async def compute(self, request: pb.ComputeInEngineRequest) -> pb.EngineComputation:
        """Has the engine compute, once for each operation; waits for the end for a while.

        Raises InvalidArgument, NotFound, FailedPrecondition.
        """
        training = await self._begun(request)
        loop = asyncio.get_running_loop()
        until = loop.time() + min(max(request.wait_seconds, 0), MAX_WAIT_SECONDS)
        while training.is_open and loop.time() < until:
            await asyncio.sleep(LOOK_SECONDS)
            training = await self._computations.reread(training)
        if training.is_open and await self._computations.waits_in_vain(training, PLACE_SECONDS):
            words = training.message or "The engine did not start."
            said = {"reason": "engine_not_ready", "message": words}
            await self._trainings.finish(training, CANCELLED, **said)
            training = await self._computations.reread(training)
        steps = 0 if training.is_open else await self._computations.steps(training)
        return pb.EngineComputation(
            state=state_of(training),
            reason=training.reason,
            message=training.message,
            outputs=training.outputs,
            loss=training.loss,
            steps=steps,
        )

    async def _begun(self, request: pb.ComputeInEngineRequest) -> EngineTraining:
        """The row of a computation, which is made by the first who asks for it."""
        key = _KEY + request.operation_id
        asked = pb.ComputeInEngineRequest()
        asked.CopyFrom(request)
        asked.ClearField("wait_seconds")
        digest = digest_of(asked)
        known = await self._computations.of_key(request.project_id, key, digest)
        if known is not None:
            return known
        serving = await self._serving(request.project_id, request.model)
        if await self._holds.holder(serving.version_id) != request.run_id:
            raise FailedPrecondition(
                "The run does not hold the engine any more.", reason="engine_held", param="model"
            )
        outputs = checked_computation(request)
        continues = await self._computations.before(request.project_id, request.run_id)
        identifier = new_name("train-")
        body = await asyncio.to_thread(
            body_of_computation, request, identifier, serving.training, continues
        )
        training = EngineTraining(
            id=identifier,
            organization_id=serving.organization_id,
            project_id=serving.project_id,
            user_id="",
            key_id="",
            model=serving.model,
            version_id=serving.version_id,
            mode=serving.training,
            idempotency_key=key,
            digest=digest,
            body=body,
            total_steps=1 if request.HasField("step") else 0,
            run_id=request.run_id,
            output_bytes=0 if request.HasField("step") else outputs,
            # The tuning service counts what its operations took.
            is_counted=True,
        )
        made = await self._trainings.create(training)
        self._wake.touch("inference")
        return made

    async def _serving(self, project_id: str, model: str) -> Serving:
        """The serving of a project's own model whose engine may be trained in place."""
        request = models_pb2.ResolveModelRequest(project_id=project_id, id=model)
        resolved = await self._models.ResolveModel(request)
        found = resolved.model
        if found.project_id != project_id or resolved.is_granted:
            raise NotFound(f"No such model: {model[:256]!r}.", reason="model_not_found")
        serving = await self._servings.find(project_id, found.id)
        may_be = serving is not None and serving.training in _MODES
        if serving is None or not may_be or serving.version_id != found.version_id:
            raise FailedPrecondition(
                f"The engine of {model!r} may not be trained by a session; `windlass models "
                f"activate {model} --training hogwild` has one that may.",
                reason="training_not_enabled",
                param="model",
            )
        return serving
