"""What the other services say, followed by watch: names, statuses, live clusters."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import grpc

from windlass.api.clusters.v1 import clusters_pb2
from windlass.api.clusters.v1.clusters_pb2_grpc import ClustersInternalServiceAsyncStub
from windlass.api.models.v1 import models_pb2
from windlass.api.models.v1.models_pb2_grpc import ModelsInternalServiceAsyncStub
from windlass.core import telemetry
from windlass.inference.domain import Name, View

log = telemetry.logger("inference")
OWNER = "inference"
CLUSTERS_POLL_SECONDS = 2.0
RECONNECT_SECONDS = 0.5


class World:
    """The newest view; `changed` is called after each change of it."""

    def __init__(
        self,
        models: ModelsInternalServiceAsyncStub,
        clusters: ClustersInternalServiceAsyncStub,
        changed: Callable[[], None],
    ):
        self._models = models
        self._clusters = clusters
        self._changed = changed
        self._names: dict[tuple[str, str], Name] | None = None
        self._statuses: dict[str, clusters_pb2.WorkloadStatus] | None = None
        self._live: dict[str, clusters_pb2.Cluster] | None = None

    def view(self) -> View | None:
        """What is known; None until everything was heard once."""
        if self._names is None or self._statuses is None or self._live is None:
            return None
        return View(names=self._names, statuses=self._statuses, clusters=self._live)

    async def run(self) -> None:
        """Follows all three until cancelled, through every loss of a peer."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._for_ever("models", self._follow_models))
            group.create_task(self._for_ever("statuses", self._follow_statuses))
            group.create_task(self._for_ever("clusters", self._poll_clusters))

    async def refresh_clusters(self) -> None:
        """Asks which clusters live, now."""
        answer = await self._clusters.ListCapacity(clusters_pb2.ListCapacityRequest())
        live = {cluster.id: cluster for cluster in answer.clusters}
        # Times of contact differ at each poll and mean nothing here.
        changed = self._live is None or _shape(self._live) != _shape(live)
        self._live = live
        if changed:
            self._changed()

    @staticmethod
    async def _for_ever(what: str, follow: Callable[[], Awaitable[None]]) -> None:
        while True:
            try:
                await follow()
            except grpc.aio.AioRpcError as error:
                log.warning("watch lost", what=what, error=error.details())
            await asyncio.sleep(RECONNECT_SECONDS)

    async def _follow_models(self) -> None:
        request = models_pb2.WatchModelsRequest()
        stream: AsyncIterator[models_pb2.ModelsDelta] = aiter(
            self._models.WatchModels(request, wait_for_ready=True)
        )
        async for delta in stream:
            if delta.snapshot or self._names is None:
                self._names = {}
            for servable in delta.deleted:
                gone = _name(servable)
                self._names.pop((gone.project_id, gone.model), None)
            for servable in delta.models:
                name = _name(servable)
                self._names[name.project_id, name.model] = name
            self._changed()

    async def _follow_statuses(self) -> None:
        request = clusters_pb2.WatchStatusRequest(owner=OWNER)
        stream: AsyncIterator[clusters_pb2.StatusDelta] = aiter(
            self._clusters.WatchStatus(request, wait_for_ready=True)
        )
        async for delta in stream:
            if delta.snapshot or self._statuses is None:
                self._statuses = {}
            for status in delta.statuses:
                self._statuses[status.workload_id] = status
            self._changed()

    async def _poll_clusters(self) -> None:
        while True:
            await self.refresh_clusters()
            await asyncio.sleep(CLUSTERS_POLL_SECONDS)


def _shape(clusters: dict[str, clusters_pb2.Cluster]) -> dict[str, tuple[str, ...]]:
    return {key: tuple(cluster.capacity.engines) for key, cluster in clusters.items()}


def _name(servable: models_pb2.ServableModel) -> Name:
    model = servable.model
    return Name(
        model=model.id,
        project_id=servable.granted_to or model.project_id,
        owner_id=model.project_id,
        organization_id=model.organization_id,
        version_id=model.version_id,
        engine_version_id=servable.engine_version_id,
        scores=model.task == models_pb2.MODEL_TASK_SCORING,
    )
