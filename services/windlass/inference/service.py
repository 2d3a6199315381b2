"""The servicers of inference."""

from collections.abc import AsyncIterator, Collection
from typing import Any

from windlass.api.clusters.v1 import clusters_pb2
from windlass.api.inference.v1 import inference_pb2 as pb
from windlass.api.inference.v1 import inference_pb2_grpc as rpc
from windlass.api.models.v1 import models_pb2
from windlass.api.models.v1.models_pb2_grpc import ModelsInternalServiceAsyncStub
from windlass.core.db.paging import page_of
from windlass.core.db.wake import Wake
from windlass.core.errors import Unavailable
from windlass.core.rpc.auth import current
from windlass.inference.domain import RUNNING, Engine, View
from windlass.inference.routing import Routes
from windlass.inference.store import InferenceStore
from windlass.inference.world import ObservedState


class InferenceServicer(rpc.InferenceServiceServicer):
    """InferenceService."""

    def __init__(
        self, store: InferenceStore, world: ObservedState, models: ModelsInternalServiceAsyncStub
    ):
        self._store = store
        self._world = world
        self._models = models

    async def ListEngines(
        self, request: pb.ListEnginesRequest, context: Any
    ) -> pb.ListEnginesResponse:
        """Engines of models that the project sees, with its own adapters on them."""
        project = current().require_project()
        rows = await self._store.rows()
        view = await self._world.view(rows)
        if view is None:
            raise Unavailable(
                "The state of the engines is not known yet; try again.", reason="starting"
            )
        seen = [
            engine
            for engine in reversed(rows.engines)
            if engine.desired == RUNNING and engine.project_id in ("", project)
        ]
        seen, more = page_of(seen, lambda one: one.id, after=request.after, limit=request.limit)
        # Another project's adapters on the same engine are nobody's business.
        adapters = {
            one.version_id for engine in seen for one in view.status(engine).adapters
        } & rows.version_ids
        answer = await self._models.LookupVersions(
            models_pb2.LookupVersionsRequest(version_ids=sorted(adapters), project_id=project)
        )
        own = {one.model.version_id for one in answer.models if one.model.project_id}
        return pb.ListEnginesResponse(
            engines=[_engine(one, view, own) for one in seen], has_more=more
        )


class InferenceInternalServicer(rpc.InferenceInternalServiceServicer):
    """InferenceInternalService."""

    def __init__(
        self,
        store: InferenceStore,
        routes: Routes,
        models: ModelsInternalServiceAsyncStub,
        wake: Wake,
    ):
        self._store = store
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

    async def FindUses(self, request: pb.FindUsesRequest, context: Any) -> pb.FindUsesResponse:
        """Engines that run the version and were wanted lately; an adapter is just unloaded."""
        return pb.FindUsesResponse(engine_ids=await self._store.users_of(request.model_version_id))


def _engine(engine: Engine, view: View, own: Collection[str]) -> pb.Engine:
    status = view.status(engine)
    away = engine.cluster_id not in view.clusters
    return pb.Engine(
        id=engine.id,
        model=engine.model,
        cluster_id=engine.cluster_id,
        phase=clusters_pb2.PHASE_PENDING if away else status.phase or clusters_pb2.PHASE_PENDING,
        adapters=[one.id for one in status.adapters if one.version_id in own and not one.error],
        message="The cluster is not connected." if away else engine.error or status.message,
        created_at=int(engine.created_at),
        engine=engine.engine,
    )
