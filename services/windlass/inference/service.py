"""The servicers of inference."""

import math
from collections.abc import AsyncIterator, Collection
from typing import Any

from windlass.api.clusters.v1 import clusters_pb2
from windlass.api.inference.v1 import inference_pb2 as pb
from windlass.api.inference.v1 import inference_pb2_grpc as rpc
from windlass.api.models.v1 import models_pb2
from windlass.api.models.v1.models_pb2_grpc import ModelsInternalServiceAsyncStub
from windlass.core.db.paging import page_of
from windlass.core.db.wake import Wake
from windlass.core.rpc.auth import current
from windlass.inference.copies import why_not_loaded
from windlass.inference.domain import Engine, View
from windlass.inference.loads import LoadStore
from windlass.inference.observed_state import ObservedState
from windlass.inference.prefetches.requests import PrefetchRequests
from windlass.inference.routing import Routes, start_of
from windlass.inference.servings.requests import ServingRequests
from windlass.inference.servings.store import ServingStore
from windlass.inference.stacks.requests import StackRequests
from windlass.inference.store import InferenceStore
from windlass.inference.trainings.requests import EngineTrainingRequests
from windlass.inference.trainings.run_requests import EngineRunRequests


class InferenceServicer(rpc.InferenceServiceServicer):
    """InferenceService."""

    def __init__(
        self,
        store: InferenceStore,
        observed: ObservedState,
        models: ModelsInternalServiceAsyncStub,
        servings: ServingRequests,
        stacks: StackRequests,
        prefetches: PrefetchRequests,
        trainings: EngineTrainingRequests,
    ):
        self._store = store
        self._observed = observed
        self._models = models
        self._servings = servings
        self._stacks = stacks
        self._prefetches = prefetches
        self._trainings = trainings

    async def CreateEngineTraining(
        self, request: pb.CreateEngineTrainingRequest, context: Any
    ) -> pb.EngineTraining:
        """Trains the engine of a model."""
        return await self._trainings.train(request)

    async def CreateEngineCheckpoint(
        self, request: pb.CreateEngineCheckpointRequest, context: Any
    ) -> pb.EngineTraining:
        """Makes the weights of an engine a model."""
        return await self._trainings.checkpoint(request)

    async def GetEngineTraining(
        self, request: pb.GetEngineTrainingRequest, context: Any
    ) -> pb.EngineTraining:
        """Returns a training."""
        return await self._trainings.get(request)

    async def ListEngineTrainings(
        self, request: pb.ListEngineTrainingsRequest, context: Any
    ) -> pb.ListEngineTrainingsResponse:
        """Lists trainings of the project."""
        return await self._trainings.list(request)

    async def CancelEngineTraining(
        self, request: pb.CancelEngineTrainingRequest, context: Any
    ) -> pb.EngineTraining:
        """Ends a training."""
        return await self._trainings.cancel(request)

    async def WatchEngineTraining(
        self, request: pb.WatchEngineTrainingRequest, context: Any
    ) -> AsyncIterator[pb.EngineTrainingProgress]:
        """Steps of a training for as long as it goes on."""
        async for progress in self._trainings.watch(request):
            yield progress

    async def PutPrefetch(
        self, request: pb.PutPrefetchRequest, context: Any
    ) -> pb.PutPrefetchResponse:
        """Has clusters bring a model's files."""
        return await self._prefetches.put(request)

    async def ListPrefetches(
        self, request: pb.ListPrefetchesRequest, context: Any
    ) -> pb.ListPrefetchesResponse:
        """Lists prefetches of the project."""
        return await self._prefetches.list(request)

    async def PutStack(self, request: pb.PutStackRequest, context: Any) -> pb.Stack:
        """Describes a serving stack."""
        return await self._stacks.put(request)

    async def ListStacks(
        self, request: pb.ListStacksRequest, context: Any
    ) -> pb.ListStacksResponse:
        """Lists serving stacks."""
        return await self._stacks.list(request)

    async def DeleteStack(
        self, request: pb.DeleteStackRequest, context: Any
    ) -> pb.DeleteStackResponse:
        """Forgets a serving stack."""
        return await self._stacks.delete(request)

    async def AdoptModel(self, request: pb.AdoptModelRequest, context: Any) -> models_pb2.Model:
        """Gives a model of a serving stack a name."""
        return await self._stacks.adopt(request)

    async def PutServing(self, request: pb.PutServingRequest, context: Any) -> pb.Serving:
        """Sets how a model is served."""
        return await self._servings.put(request)

    async def GetServing(self, request: pb.GetServingRequest, context: Any) -> pb.Serving:
        """Returns how a model is served."""
        return await self._servings.get(request)

    async def ListServings(
        self, request: pb.ListServingsRequest, context: Any
    ) -> pb.ListServingsResponse:
        """Lists how models are served."""
        return await self._servings.list(request)

    async def DeleteServing(
        self, request: pb.DeleteServingRequest, context: Any
    ) -> pb.DeleteServingResponse:
        """Ends the engines of a model."""
        return await self._servings.delete(request)

    async def ListEngines(
        self, request: pb.ListEnginesRequest, context: Any
    ) -> pb.ListEnginesResponse:
        """Engines of models that the project sees, with its own adapters on them."""
        principal = current()
        project = principal.require_project()
        rows = await self._store.rows()
        view = await self._observed.known_view(rows)
        seen = [
            engine
            for engine in reversed(rows.running)
            if engine.project_id in ("", project) and principal.may_use(engine.model)
        ]
        seen, more = page_of(seen, lambda one: one.id, after=request.after, limit=request.limit)
        # Another project's adapters on the same engine are nobody's business.
        adapters = {
            one.version_id for engine in seen for one in view.status(engine).adapters
        } & rows.version_ids
        answer = await self._models.LookupVersions(
            models_pb2.LookupVersionsRequest(version_ids=sorted(adapters), project_id=project)
        )
        own = {
            one.model.version_id
            for one in answer.models
            if one.model.project_id and principal.may_use(one.model.id)
        }
        return pb.ListEnginesResponse(
            engines=[
                _engine(one, view, own, rows.now, is_operator=principal.may("platform.read"))
                for one in seen
            ],
            has_more=more,
        )


class InferenceInternalServicer(rpc.InferenceInternalServiceServicer):
    """InferenceInternalService."""

    def __init__(
        self,
        store: InferenceStore,
        servings: ServingStore,
        routes: Routes,
        models: ModelsInternalServiceAsyncStub,
        loads: LoadStore,
        runs: EngineRunRequests,
        wake: Wake,
    ):
        self._runs = runs
        self._store = store
        self._servings = servings
        self._loads = loads
        self._routes = routes
        self._models = models
        self._wake = wake

    async def WatchRoutes(
        self, request: pb.WatchRoutesRequest, context: Any
    ) -> AsyncIterator[pb.RoutesDelta]:
        """Routes for as long as the gateway listens."""
        async for delta in self._routes.follow():
            yield delta

    async def WantModel(self, request: pb.WantModelRequest, context: Any) -> pb.WantModelResponse:
        """Notes the use of a model; what follows from it follows by routes."""
        resolved = await self._models.ResolveModel(
            models_pb2.ResolveModelRequest(project_id=request.project_id, id=request.model)
        )
        own = resolved.model.version_id
        await self._store.want(own, resolved.base.model.version_id or own)
        self._wake.touch("inference")
        return pb.WantModelResponse()

    async def ReportLoad(
        self, request: pb.ReportLoadRequest, context: Any
    ) -> pb.ReportLoadResponse:
        """Notes how many requests a gateway has open, and how many of them wait in line."""
        await self._loads.report(request)
        return pb.ReportLoadResponse()

    async def HoldEngine(self, request: pb.HoldEngineRequest, context: Any) -> pb.HeldEngine:
        """Gives an engine to a run of tuning."""
        return await self._runs.hold(request)

    async def ReleaseEngine(
        self, request: pb.ReleaseEngineRequest, context: Any
    ) -> pb.ReleaseEngineResponse:
        """Takes the engine of a run back."""
        return await self._runs.release(request)

    async def ComputeInEngine(
        self, request: pb.ComputeInEngineRequest, context: Any
    ) -> pb.EngineComputation:
        """Has the engine of a run compute."""
        return await self._runs.compute(request)

    async def FindUses(self, request: pb.FindUsesRequest, context: Any) -> pb.FindUsesResponse:
        """Engines that run the version and were wanted lately, and servings of it."""
        version = request.model_version_id
        # An adapter is just unloaded.
        drafted = await self._servings.drafted_by(version)
        return pb.FindUsesResponse(
            engine_ids=await self._store.users_of(version),
            serving_models=await self._servings.models_of(version),
            drafted_models=[model for _, model in drafted],
            drafted_projects=[project for project, _ in drafted],
        )


def _engine(
    engine: Engine, view: View, own: Collection[str], now: float, *, is_operator: bool
) -> pb.Engine:
    status = view.status(engine)
    away = engine.cluster_id not in view.clusters
    message = "The cluster is not connected." if away else _message(engine, view, now)
    load = clusters_pb2.ServingLoad() if away else view.load(engine)
    name = view.names.get(engine.version_id)
    if not message and status.weights_error:
        message = f"does not take the weights of {engine.follow}: {status.weights_error}"
    elif not message and engine.is_dedicated:
        message = "serves this adapter alone"
    elif not message and name is not None and name.is_copy:
        message = f"runs the adapter's merged copy: {why_not_loaded(engine, name)}"
    if message and engine.is_adopted and not is_operator:
        # Addresses of the operator's network, and what else a stack has.
        message = start_of(engine, view)
    return pb.Engine(
        id=engine.id,
        model=engine.model,
        cluster_id=engine.cluster_id,
        phase=clusters_pb2.PHASE_PENDING if away else status.phase or clusters_pb2.PHASE_PENDING,
        adapters=[one.id for one in status.adapters if one.version_id in own and not one.error],
        message=message,
        created_at=int(engine.created_at),
        engine=engine.engine,
        replica=engine.replica,
        cache_percent=load.cache_percent if load.HasField("cache_percent") else None,
        gpu_percent=load.gpu_percent if load.HasField("gpu_percent") else None,
        requests=load.requests if load.HasField("requests") else None,
        wait_seconds=load.wait_seconds if load.HasField("wait_seconds") else None,
        queue_position=0 if away else status.queue_position,
        placement_reason=engine.placement_reason,
        follow=engine.follow,
        weight_version=0 if away else status.capabilities.weight_version,
    )


def _message(engine: Engine, view: View, now: float) -> str:
    """Returns why the engine failed and when it may start again, or what its start waits for."""
    if engine.failed_at:
        seconds = math.ceil(engine.retry_at - now)
        again = f"in {seconds} s" if seconds > 0 else "now"
        return f"{engine.error}; a request starts it again {again}"
    status = view.status(engine)
    is_up = status.phase == clusters_pb2.PHASE_RUNNING
    return status.message if is_up else status.message or start_of(engine, view)
