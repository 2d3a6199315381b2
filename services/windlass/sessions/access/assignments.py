"""Namespaces of a project in clusters, as the clusters service reports them now."""

import asyncio
import time

import grpc

from windlass.api.clusters.v1 import clusters_pb2, clusters_pb2_grpc
from windlass.core.db.paging import whole
from windlass.core.errors import Unavailable

FRESH_SECONDS = 0.4
ASK_SECONDS = 5.0


class Assignments:
    """A cached snapshot of assignments, refreshed on demand when it is stale."""

    def __init__(self, clusters: clusters_pb2_grpc.ClustersInternalServiceAsyncStub):
        self._clusters = clusters
        self._namespaces: dict[tuple[str, str], str] = {}
        self._taken_at = float("-inf")
        self._taking = asyncio.Lock()

    async def namespace(self, cluster_id: str, project_id: str) -> str:
        """The project's namespace there, empty when it has none; raises Unavailable."""
        place = (cluster_id, project_id)
        asked_at = time.monotonic()
        # A project that was just assigned should not get an older answer.
        if place not in self._namespaces or asked_at - self._taken_at > FRESH_SECONDS:
            async with self._taking:
                # A call that waited here may use what the one before has taken meanwhile.
                if self._taken_at < asked_at:
                    await self._take()
        return self._namespaces.get(place, "")

    async def _take(self) -> None:
        began = time.monotonic()
        try:
            parts = self._clusters.ListCapacity(
                clusters_pb2.ListCapacityRequest(), timeout=ASK_SECONDS
            )
            answer = await whole(parts, clusters_pb2.ListCapacityResponse())
        except grpc.aio.AioRpcError as error:
            raise Unavailable("Assignments of clusters cannot be read now.") from error
        self._namespaces = {
            (one.cluster_id, one.project_id): one.namespace for one in answer.assignments
        }
        self._taken_at = began
