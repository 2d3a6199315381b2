"""The loops of federation: place, tell clusters, hear from them, give up on those that are silent.

Any number of processes may run them at once: every result is applied under its row's lock, to
what the row says then.
"""

import time
from collections.abc import Callable, Iterable
from functools import partial

import grpc

from windlass.api.clusters.v1 import clusters_pb2, clusters_pb2_grpc
from windlass.api.jobs.v1 import jobs_pb2, jobs_pb2_grpc
from windlass.core import telemetry
from windlass.core.clock import now_ms
from windlass.core.config import Settings
from windlass.core.db.paging import whole
from windlass.core.errors import AppError, FailedPrecondition, NotFound, from_rpc
from windlass.federation import domain, messages
from windlass.federation.admission import SpecRefused, admit, is_suspended
from windlass.federation.domain import NOTE, Federated
from windlass.federation.store import BATCH, FederationStore
from windlass.residency.rule import MISMATCH

HOMELESS = (
    "Its namespace belongs to no project. An operator can assign one with `windlass "
    "clusters assign`."
)

log = telemetry.logger("federation")


class ObjectPlacer:
    """Gives objects that wait to clusters, by what decides on jobs."""

    def __init__(
        self,
        store: FederationStore,
        clusters: clusters_pb2_grpc.ClustersInternalServiceAsyncStub,
        jobs: jobs_pb2_grpc.JobsInternalServiceAsyncStub,
    ):
        self._store = store
        self._clusters = clusters
        self._jobs = jobs

    async def once(self) -> bool:
        """Places a batch; whether there may be more."""
        rows = await self._store.waiting(now_ms())
        if not rows:
            return False
        parts = self._clusters.ListCapacity(clusters_pb2.ListCapacityRequest())
        known = await whole(parts, clusters_pb2.ListCapacityResponse())
        for row in rows:
            decide = await self._decision(row, known.assignments)
            # What it was decided on may have changed meanwhile.
            await self._store.change(row.id, partial(_if_same, row, decide))
        return len(rows) == BATCH

    async def _decision(
        self, row: Federated, assignments: Iterable[clusters_pb2.Assignment]
    ) -> Callable[[Federated], Federated]:
        now = now_ms()
        try:
            admitted = admit(row.kind, row.spec)
        except SpecRefused as error:
            why = str(error)
            return lambda row: domain.refused(row, "NotFederated", why, now)
        if is_suspended(row.spec):
            return lambda row: domain.waits(row, "It is suspended.", now)
        places = {(one.cluster_id, one.namespace): one for one in assignments if not one.removing}
        home = places.get((row.cluster_id, row.namespace))
        if home is None:
            return lambda row: domain.waits(row, HOMELESS, now)
        chosen = await self._jobs.ChooseCluster(
            jobs_pb2.ChooseClusterRequest(
                project_id=home.project_id,
                resources=admitted.resources,
                except_cluster=row.cluster_id,
            )
        )
        for one in places.values():
            if (one.cluster_id, one.project_id) == (chosen.cluster_id, home.project_id):
                name, reason = chosen.cluster_name, chosen.reason
                return lambda row: domain.placed(row, one, name, reason, now)
        return lambda row: domain.waits(row, chosen.reason, now)


def _if_same(
    before: Federated, decide: Callable[[Federated], Federated], now: Federated
) -> Federated:
    same = (now.state, now.attempt, now.spec) == (before.state, before.attempt, before.spec)
    return decide(now) if same else now


class Telling:
    """Tells each object's clusters what the row says; idempotent there."""

    def __init__(
        self,
        store: FederationStore,
        clusters: clusters_pb2_grpc.ClustersInternalServiceAsyncStub,
        *,
        max_attempts: int,
    ):
        self._store = store
        self._clusters = clusters
        self._max_attempts = max_attempts

    async def once(self) -> bool:
        """Tells of a batch; whether there may be more."""
        token, rows = await self._store.owed()
        for row in rows:
            try:
                await self._tell(row)
            except AppError as error:
                # Its lease runs out, and it is tried again.
                log.warning("object_status_delivery_failed", object=row.id, error=error.message)
                continue
            await self._store.mark(token, row)
        return len(rows) == BATCH

    async def _tell(self, row: Federated) -> None:
        if row.worker and not await self._put(messages.guest(row)):
            gone = "Its cluster was unregistered, or may not have it any more."
            lose = partial(domain.lost, why=gone, max_attempts=self._max_attempts, now=now_ms())
            await self._store.change(row.id, lose)
        if not await self._put(messages.note(row)):
            # Its own cluster is gone, and the object with it.
            at_home = clusters_pb2.WorkloadStatus(
                phase=clusters_pb2.PHASE_STOPPED, cluster_id=row.cluster_id
            )
            await self._store.change(row.id, partial(domain.noted, status=at_home))

    async def _put(self, workload: clusters_pb2.Workload) -> bool:
        """Returns True if the cluster may have it, and is there; raises AppError for what may
        pass.
        """
        try:
            await self._clusters.PutWorkload(clusters_pb2.PutWorkloadRequest(workload=workload))
        except grpc.aio.AioRpcError as error:
            refusal = from_rpc(error)
            if isinstance(refusal, NotFound) or refusal.reason == MISMATCH:
                return False
            # A newer row was told already.
            if not isinstance(refusal, FailedPrecondition):
                raise refusal from error
        return True


class WorkerLivenessSweeper:
    """Finds objects whose worker went silent for so long that it has let go of them.

    Silence is counted by this process's own clock, as jobs count it.
    """

    def __init__(
        self,
        store: FederationStore,
        clusters: clusters_pb2_grpc.ClustersInternalServiceAsyncStub,
        settings: Settings,
        *,
        clock: Callable[[], float] = time.monotonic,
    ):
        self._store = store
        self._clusters = clusters
        self._seconds = 2 * settings.agents.suspend_seconds or settings.jobs.agent_lost_seconds
        self._max_attempts = settings.jobs.max_attempts
        self._clock = clock
        self._missing: dict[str, float] = {}

    async def once(self) -> bool:
        """Runs one round; returns True if there may be more to do."""
        workers = await self._store.workers()
        if not workers:
            return False
        parts = self._clusters.ListCapacity(clusters_pb2.ListCapacityRequest())
        answer = await whole(parts, clusters_pb2.ListCapacityResponse())
        live, now = {one.id for one in answer.clusters if one.live}, self._clock()
        self._missing = {one: self._missing.get(one, now) for one in workers if one not in live}
        silent = [one for one, since in self._missing.items() if now - since >= self._seconds]
        ids = await self._store.held_by(silent) if silent else []
        for object_id in ids:
            await self._store.change(
                object_id, lambda row: _lost_there(row, silent, self._max_attempts)
            )
        return len(ids) == BATCH


def _lost_there(row: Federated, silent: list[str], max_attempts: int) -> Federated:
    if row.worker not in silent:
        return row
    return domain.lost(row, "Its cluster does not answer.", max_attempts=max_attempts, now=now_ms())


class ObjectStatuses:
    """Applies what clusters say of guests and of notes."""

    def __init__(self, store: FederationStore, *, max_attempts: int):
        self._store = store
        self._max_attempts = max_attempts

    async def apply(self, statuses: Iterable[clusters_pb2.WorkloadStatus]) -> None:
        """Applies what is news."""
        by_id = {status.workload_id: messages.bounded(status) for status in statuses}
        known = await self._store.find(sorted(by_id))
        for workload_id, status in by_id.items():
            row = known.get(workload_id.removeprefix(NOTE))
            if row is None:
                continue
            decide = self._decision(status)
            if decide(row) != row:
                await self._store.change(row.id, decide)

    def _decision(self, status: clusters_pb2.WorkloadStatus) -> Callable[[Federated], Federated]:
        if status.workload_id.startswith(NOTE):
            return partial(domain.noted, status=status)
        return partial(
            domain.observed, status=status, max_attempts=self._max_attempts, now=now_ms()
        )
