"""Insertion of new workloads: concurrent callers share one transaction per cluster.

Most workloads arrive once and never move, and each by itself would cost six round trips
under the cluster's lock. A caller that comes while a transaction is under way joins the next.
"""

import asyncio
from collections.abc import Collection, Sequence

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.ext.asyncio import AsyncConnection

from windlass.api.clusters.v1 import clusters_pb2 as pb
from windlass.clusters.domain import records
from windlass.clusters.storage.tables import counters, workloads
from windlass.clusters.storage.workloads import WorkloadStore
from windlass.core.db import Database

BATCH = 100
# A workload's revision and the clusters to wake.
Taken = tuple[int, list[str]]

# Statements made once: to make one costs as much as to run it.
_IDS = sa.bindparam("ids", type_=ARRAY(sa.Text))
_HASHES = (
    sa.select(sa.func.hashtextextended(sa.func.unnest(_IDS), 0).label("hash"))
    # In one order, or two batches could wait for each other.
    .order_by("hash")
    .cte("hashes")
    .prefix_with("MATERIALIZED", dialect="postgresql")
)
_LOCK = sa.select(sa.func.pg_advisory_xact_lock(_HASHES.c.hash))
_KNOWN = sa.select(workloads.c.id).where(workloads.c.id == sa.any_(_IDS))
_ADVANCE = (
    counters.update()
    .where(counters.c.stream == sa.bindparam("topic"))
    .values(revision=counters.c.revision + sa.bindparam("count"))
    .returning(counters.c.revision)
)
_INSERT = workloads.insert()


class WorkloadInserts:
    """Puts workloads; those that exist are left to the WorkloadStore."""

    def __init__(self, database: Database, store: WorkloadStore):
        self._database = database
        self._store = store
        self._waiting: dict[str, list[tuple[pb.Workload, asyncio.Future[Taken | None]]]] = {}
        self._writers: set[asyncio.Task[None]] = set()

    async def put(self, workload: pb.Workload, geographies: Collection[str] = ()) -> Taken:
        """See WorkloadStore.put."""
        if geographies:
            # Each is held against its cluster's label by itself.
            return await self._store.put(workload, geographies)
        done: asyncio.Future[Taken | None] = asyncio.get_running_loop().create_future()
        queue = self._waiting.get(workload.cluster_id)
        if queue is None:
            queue = self._waiting[workload.cluster_id] = []
            writer = asyncio.create_task(self._write(workload.cluster_id), name="put workloads")
            self._writers.add(writer)
            writer.add_done_callback(self._writers.discard)
        queue.append((workload, done))
        return await done or await self._store.put(workload)

    async def close(self) -> None:
        """Waits for insertions in progress."""
        if self._writers:
            await asyncio.wait(self._writers)

    async def _write(self, cluster_id: str) -> None:
        """Writes until nobody waits for the cluster any more."""
        queue = self._waiting[cluster_id]
        while queue:
            batch = queue[:BATCH]
            del queue[:BATCH]
            try:
                revisions = await self._insert(cluster_id, [workload for workload, _ in batch])
            except Exception as error:
                for _, done in batch:
                    if not done.done():
                        done.set_exception(error)
                continue
            for workload, done in batch:
                # The first of an id alone; a repeat finds it there.
                revision = revisions.pop(workload.id, None)
                if not done.done():
                    done.set_result(None if revision is None else (revision, [cluster_id]))
        del self._waiting[cluster_id]

    async def _insert(self, cluster_id: str, batch: Sequence[pb.Workload]) -> dict[str, int]:
        """Stores those that are new; returns their revisions."""
        values = {"ids": [workload.id for workload in batch]}
        async with self._database.begin() as connection:
            await connection.execute(_LOCK, values)
            known = set((await connection.execute(_KNOWN, values)).scalars())
            fresh = {one.id: one for one in reversed(batch) if one.id not in known}
            last = await _advance(connection, cluster_id, len(fresh))
            if last is None:
                return {}
            revisions = {id_: last - at for at, id_ in enumerate(fresh)}
            rows = [_row(workload, revisions[workload.id]) for workload in fresh.values()]
            await connection.execute(_INSERT, rows)
        return revisions


async def _advance(connection: AsyncConnection, cluster_id: str, count: int) -> int | None:
    """The last of the cluster's next revisions, locked until the commit; None without any."""
    if not count:
        return None
    values = {"topic": records.cluster_topic(cluster_id), "count": count}
    revision: int | None = (await connection.execute(_ADVANCE, values)).scalar()
    return revision


def _row(workload: pb.Workload, revision: int) -> dict[str, object]:
    return {
        "id": workload.id,
        "cluster_id": workload.cluster_id,
        "owner": workload.owner,
        "kind": workload.kind,
        "generation": workload.generation,
        "desired": workload.desired,
        "spec": workload.SerializeToString(),
        "revision": revision,
        "phase": pb.PHASE_UNSPECIFIED,
        "namespace": workload.placement.namespace,
    }
