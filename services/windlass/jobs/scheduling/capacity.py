"""Snapshot of the clusters' capacity and of the jobs' load on them, refreshed periodically."""

import asyncio
import time
from collections import Counter

import sqlalchemy as sa

from windlass.api.clusters.v1 import clusters_pb2, clusters_pb2_grpc
from windlass.core.clock import now_ms
from windlass.core.db import Database
from windlass.core.db.paging import whole
from windlass.jobs.domain.job import TERMINAL, JobState
from windlass.jobs.scheduling.cluster_snapshot import ClusterSnapshot, snapshot_of
from windlass.jobs.scheduling.scoring import Load, Waiting
from windlass.jobs.storage.tables import jobs
from windlass.kubernetes.quota_kinds import in_kinds

LOOK_SECONDS = 1.0
# With no cluster, somebody may wait for the first; but not each new job is worth a look.
NONE_SECONDS = 0.1
TRAINED_SECONDS = 60.0
TRAINED_WINDOW_MS = 86_400_000


class Capacity:
    """The snapshot and the load, at most a second old when looked at: placing must not wait, but
    what refuses a job is looked at after the job was asked for.
    """

    def __init__(
        self, database: Database, clusters: clusters_pb2_grpc.ClustersInternalServiceAsyncStub
    ):
        self._database = database
        self._clusters = clusters
        self._until = self._looked = 0.0
        self._trained_until = 0.0
        self._looking = asyncio.Lock()
        # None before the first look.
        self.snapshot: ClusterSnapshot | None = None
        self.load = Load()

    async def look(self, since: float = 0.0) -> bool:
        """Looks again if the last look is too old, or began before `since` (monotonic seconds);
        returns whether it did. Many wait for one look.
        """
        if self._is_recent(since):
            return False
        async with self._looking:
            return await self._look_again(since)

    def _is_recent(self, since: float) -> bool:
        return time.monotonic() < self._until and self._looked >= since

    async def _look_again(self, since: float) -> bool:
        if self._is_recent(since):
            return False
        began = time.monotonic()
        parts = self._clusters.ListCapacity(clusters_pb2.ListCapacityRequest())
        answer = await whole(parts, clusters_pb2.ListCapacityResponse())
        self.load = await self._weigh()
        self.snapshot = snapshot_of(answer)
        seconds = LOOK_SECONDS if self.snapshot.clusters else NONE_SECONDS
        self._looked, self._until = began, time.monotonic() + seconds
        return True

    async def _weigh(self) -> Load:
        trained = self.load.trained
        async with self._database.autocommit() as connection:
            counts = Counter({row[0]: row[1] for row in await connection.execute(_JOBS)})
            waiting = {
                (row.cluster_id, row.queue): Waiting(
                    row.many,
                    Counter(in_kinds(row.gpus, row.cpus, row.memory_bytes)),
                )
                for row in await connection.execute(_WAITING)
            }
            taken = {
                row.cluster_id: Counter(in_kinds(row.gpus, row.cpus, row.memory_bytes))
                for row in await connection.execute(_TAKEN)
            }
            if time.monotonic() >= self._trained_until:
                since = {"since": now_ms() - TRAINED_WINDOW_MS}
                rows = await connection.execute(_TRAINED, since)
                trained = frozenset((row[0], row[1]) for row in rows)
                self._trained_until = time.monotonic() + TRAINED_SECONDS
        return Load(jobs=counts, waiting=waiting, taken=taken, trained=trained)


def _placed() -> tuple[sa.ColumnElement[bool], ...]:
    # Literals, since a plan with parameters could not use the partial index.
    return (
        jobs.c.cluster_id != sa.literal_column("''"),
        jobs.c.state < sa.literal_column(f"{min(TERMINAL):d}"),
    )


def _totals() -> list[sa.Label[int]]:
    """Sums of the resources requested by each group of jobs."""
    nodes = sa.func.coalesce(jobs.c.plan["num_nodes"].as_integer(), 1)

    def total(resource: str) -> sa.Label[int]:
        each = sa.func.coalesce(
            sa.cast(jobs.c.spec["resources"][resource].astext, sa.BigInteger), 0
        )
        return sa.cast(sa.func.sum(each * nodes), sa.BigInteger).label(resource)

    return [total(resource) for resource in ("gpus", "cpus", "memory_bytes")]


def _waiting() -> sa.Select[tuple[str, str, int, int, int, int]]:
    """Resources of jobs that Kueue has not admitted yet, by cluster and ClusterQueue."""
    queue = jobs.c.place["cluster_queue"].astext
    # A job that was admitted is STARTING too, but no longer has a reason to wait.
    untold = sa.and_(jobs.c.state == int(JobState.STARTING), jobs.c.queue["reason"].astext != "")
    return (
        sa.select(
            jobs.c.cluster_id,
            queue.label("queue"),
            sa.func.count().label("many"),
            *_totals(),
        )
        .where(*_placed(), jobs.c.place.is_not(None))
        .where(sa.or_(jobs.c.state == int(JobState.QUEUED), untold))
        .group_by(jobs.c.cluster_id, queue)
    )


# Made once: building a statement costs as much as running one of these.
_JOBS = sa.select(jobs.c.cluster_id, sa.func.count()).where(*_placed()).group_by(jobs.c.cluster_id)
_WAITING = _waiting()
# Of machines: there a job has no place in a queue of Kueue's.
_TAKEN = (
    sa.select(jobs.c.cluster_id, *_totals())
    .where(*_placed(), jobs.c.place.is_(None))
    .group_by(jobs.c.cluster_id)
)
_TRAINED = (
    sa.select(jobs.c.workload_cluster, jobs.c.model_version_id)
    .where(
        jobs.c.started_at_ms > sa.literal_column("0"), jobs.c.started_at_ms > sa.bindparam("since")
    )
    .distinct()
)
