"""View of the other services: names on demand, statuses by watch, clusters and tunnels by poll."""

import asyncio
from collections.abc import AsyncIterable, Callable

import grpc

from windlass.api.clusters.v1 import clusters_pb2
from windlass.api.clusters.v1.clusters_pb2_grpc import ClustersInternalServiceAsyncStub
from windlass.api.sessions.v1 import sessions_pb2
from windlass.api.sessions.v1.sessions_pb2_grpc import SessionsInternalServiceAsyncStub
from windlass.core import telemetry
from windlass.core.db.paging import whole
from windlass.core.errors import Unavailable
from windlass.core.rpc.following import Follower
from windlass.inference.copies import with_copies
from windlass.inference.domain import Rows, View
from windlass.inference.names import Names

log = telemetry.logger("inference")
OWNER = "inference"
CLUSTERS_POLL_SECONDS = 2.0
REST_SECONDS = 10.0


class ObservedState:
    """The newest view; `changed` is called after each change of it."""

    def __init__(
        self,
        names: Names,
        clusters: ClustersInternalServiceAsyncStub,
        sessions: SessionsInternalServiceAsyncStub,
        changed: Callable[[], None],
        *,
        engine: str,
    ):
        """`engine` is the installation's kind."""
        self._engine = engine
        self._names = names
        self._clusters = clusters
        self._sessions = sessions
        self._changed = changed
        self._statuses: dict[str, clusters_pb2.WorkloadStatus] | None = None
        self._live: dict[str, clusters_pb2.Cluster] | None = None
        self._assigned: dict[str, dict[str, clusters_pb2.Assignment]] = {}
        self._tunnels: frozenset[str] = frozenset()
        self._queues: dict[str, dict[str, clusters_pb2.ClusterQueue]] = {}
        self._geographies: dict[str, str] = {}
        self.followers = (
            names.follower,
            Follower("statuses", self._watch_statuses, self._hear_statuses),
        )

    @property
    def known(self) -> bool:
        """True if statuses and clusters were heard once."""
        return self._statuses is not None and self._live is not None

    async def view(self, rows: Rows) -> View | None:
        """The view of these rows; None until everything was heard once."""
        names = await self._names.of(rows.version_ids | rows.draft_ids) if self.known else {}
        # Looked at last, so that no status is older than the names.
        if self._statuses is None or self._live is None:
            return None
        return View(
            names=with_copies(names, rows.servings, self._engine),
            statuses=self._statuses,
            clusters=self._live,
            assigned=self._assigned,
            tunnels=self._tunnels,
            queues=self._queues,
            geographies=self._geographies,
        )

    async def known_view(self, rows: Rows) -> View:
        """The view of these rows; raises Unavailable `starting` until everything was heard."""
        view = await self.view(rows)
        if view is None:
            raise Unavailable(
                "The state of the engines is not known yet; try again.", reason="starting"
            )
        return view

    async def run(self) -> None:
        """Follows all until cancelled, through every loss of a peer."""
        async with asyncio.TaskGroup() as group:
            for follower in self.followers:
                group.create_task(follower.run())
            group.create_task(self._poll_clusters())

    async def refresh_clusters(self) -> None:
        """Asks which clusters live, whose they are and which have a tunnel, now."""
        answer, tunnels = await asyncio.gather(
            whole(
                self._clusters.ListCapacity(clusters_pb2.ListCapacityRequest(with_models=True)),
                clusters_pb2.ListCapacityResponse(),
            ),
            whole(
                self._sessions.ListTunnels(sessions_pb2.ListTunnelsRequest()),
                sessions_pb2.ListTunnelsResponse(),
            ),
        )
        before = self._live and self._whole_shape()
        self._live = {cluster.id: cluster for cluster in answer.clusters}
        self._tunnels = frozenset(tunnels.cluster_ids)
        self._assigned = {}
        for one in answer.assignments:
            if not one.removing:
                self._assigned.setdefault(one.cluster_id, {})[one.project_id] = one
        self._geographies = {one.project_id: one.geography for one in answer.residencies}
        # Where the next engine starts; it is no reason to plan anew.
        self._queues = {
            one.cluster_id: {queue.name: queue for queue in one.queues} for one in answer.queues
        }
        # Times of contact differ at each poll and mean nothing here.
        if before != self._whole_shape():
            self._changed()

    def _whole_shape(self) -> tuple[object, ...]:
        """The part of what is asked for by poll that plans and routes hang on."""
        return (
            _shape(self._live or {}), self._assigned, self._tunnels, self._geographies,
        )  # fmt: skip

    def _watch_statuses(self) -> AsyncIterable[clusters_pb2.StatusDelta]:
        request = clusters_pb2.WatchStatusRequest(owner=OWNER)
        return self._clusters.WatchStatus(request, wait_for_ready=True)

    def _hear_statuses(self, delta: clusters_pb2.StatusDelta) -> None:
        if delta.snapshot or self._statuses is None:
            self._statuses = {}
        news = delta.snapshot
        for status in delta.statuses:
            known = self._statuses.get(status.workload_id)
            news = news or known is None or _without_load(known) != _without_load(status)
            self._statuses[status.workload_id] = status
        if news:
            self._changed()

    async def _poll_clusters(self) -> None:
        while True:
            try:
                await self.refresh_clusters()
            except grpc.aio.AioRpcError as error:
                log.warning("cluster_list_failed", error=error.details())
            # The first engine that is wanted has them asked at once.
            await asyncio.sleep(CLUSTERS_POLL_SECONDS if self._statuses else REST_SECONDS)


def _without_load(status: clusters_pb2.WorkloadStatus) -> clusters_pb2.WorkloadStatus:
    """The part of a status that routes and plans hang on at once; the rest is looked at in time."""
    if not (status.HasField("load") or status.HasField("training")):
        return status
    copy = clusters_pb2.WorkloadStatus()
    copy.CopyFrom(status)
    copy.ClearField("load")
    copy.ClearField("training")
    return copy


def _shape(clusters: dict[str, clusters_pb2.Cluster]) -> dict[str, tuple[object, ...]]:
    return {
        key: (
            *(tuple(one.capacity.engines), one.capacity.engine_slots, tuple(one.roles)),
            *(one.shared, one.embedded, one.capacity.draining, tuple(one.addresses)),
            one.geography,
            *(one.capacity.direct.address, one.capacity.direct.certificate_digest),
        )
        for key, one in clusters.items()
    }
