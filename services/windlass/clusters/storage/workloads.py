"""Every query on workloads: their desired state, their status, and the streams of both.

Locks are taken in one order: workload id (advisory), cluster row, cluster
counter, owner counters by name, workload rows.
"""

from collections.abc import Collection, Sequence
from datetime import timedelta

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import Insert, insert
from sqlalchemy.ext.asyncio import AsyncConnection

from windlass.api.clusters.v1 import clusters_pb2 as pb
from windlass.clusters.domain import records
from windlass.clusters.domain.policy import OperatorPolicy, endpoint
from windlass.clusters.domain.records import ChangeBatch
from windlass.clusters.domain.reported import bound_load, bound_texts
from windlass.clusters.storage.clusters import policy_of, require_session, superseded, unregistered
from windlass.clusters.storage.statuses import REPORTED, TOLD, store
from windlass.clusters.storage.stream_heads import StreamHeadReader
from windlass.clusters.storage.tables import OF_A_CLUSTER, clusters, counters, workloads
from windlass.core.db import Database
from windlass.core.errors import FailedPrecondition, NotFound
from windlass.residency.rule import require_cluster
from windlass.workload_phases import TERMINAL_PHASES


async def _advance_cluster(connection: AsyncConnection, cluster_id: str) -> int | None:
    """The next revision of a cluster, locked until the commit; None when it is gone."""
    values = {"topic": records.cluster_topic(cluster_id)}
    revision: int | None = (await connection.execute(_ADVANCE, values)).scalar()
    return revision


def _upsertion() -> Insert:
    names = ("id", "cluster_id", *_SAID)
    named: dict[str, sa.BindParameter[object]] = {
        name: sa.bindparam(f"new_{name}") for name in names
    }
    row = insert(workloads).values(**named, phase=int(pb.PHASE_UNSPECIFIED), collected_at=None)
    later = {name: row.excluded[name] for name in (*_SAID, "phase", "collected_at")}
    return row.on_conflict_do_update(index_elements=["id", "cluster_id"], set_=later)


# Statements made once: to make one costs as much as to run it.
_SAID = ("owner", "kind", "generation", "desired", "spec", "revision", "namespace")
_ADVANCE = (
    counters.update()
    .where(counters.c.stream == sa.bindparam("topic"))
    .values(revision=counters.c.revision + 1)
    .returning(counters.c.revision)
)
_LOCK = sa.select(
    sa.func.pg_advisory_xact_lock(
        sa.func.hashtextextended(sa.bindparam("workload", type_=sa.Text), 0)
    )
)
_KNOWN = sa.select(
    workloads.c.cluster_id, workloads.c.generation, workloads.c.revision, workloads.c.desired
).where(workloads.c.id == sa.bindparam("workload"))
_UPSERT = _upsertion()


def _is(workload_id: str, cluster_id: str) -> sa.ColumnElement[bool]:
    return sa.and_(workloads.c.id == workload_id, workloads.c.cluster_id == cluster_id)


class WorkloadStore:
    """Workloads of every cluster and owner."""

    def __init__(self, database: Database):
        self._database = database
        self._heads = StreamHeadReader(database)

    async def put(
        self, workload: pb.Workload, geographies: Collection[str] = ()
    ) -> tuple[int, list[str]]:
        """Creates or replaces a workload; returns its revision and the clusters to wake.

        `geographies` are those of the projects that own something of it. Raises
        FailedPrecondition `stale_generation` and `geography_mismatch`, NotFound for an unknown
        cluster.
        """
        async with self._database.begin() as connection:
            return await self.put_within(connection, workload, geographies)

    async def put_within(
        self, connection: AsyncConnection, workload: pb.Workload, geographies: Collection[str] = ()
    ) -> tuple[int, list[str]]:
        """`put` inside the caller's transaction."""
        key = {"workload": workload.id}
        await connection.execute(_LOCK, key)
        rows = (await connection.execute(_KNOWN, key)).all()
        newest = max(rows, key=lambda row: row.generation, default=None)
        if newest is not None and newest.generation >= workload.generation:
            repeated = (newest.generation, newest.cluster_id) == (
                workload.generation,
                workload.cluster_id,
            )
            if repeated:
                return newest.revision, []
            raise FailedPrecondition(
                f"Generation {newest.generation} of {workload.id} already exists.",
                reason="stale_generation",
            )
        left = {
            row.cluster_id
            for row in rows
            if row.cluster_id != workload.cluster_id and row.desired != pb.DESIRED_STATE_DELETED
        }
        revision = 0
        for cluster_id in sorted({*left, workload.cluster_id}):
            if cluster_id == workload.cluster_id:
                revision = await self._upsert(connection, workload, geographies)
            else:
                await self._leave(connection, workload.id, cluster_id)
        return revision, [*left, workload.cluster_id]

    async def _upsert(
        self, connection: AsyncConnection, workload: pb.Workload, geographies: Collection[str]
    ) -> int:
        revision = await _advance_cluster(connection, workload.cluster_id)
        if revision is None:
            if workload.desired != pb.DESIRED_STATE_DELETED:
                raise NotFound(
                    f"The cluster {workload.cluster_id!r} does not exist.",
                    reason="cluster_not_found",
                )
            await connection.execute(
                workloads.delete().where(_is(workload.id, workload.cluster_id))
            )
            return 0
        if geographies:
            await _require_label(connection, workload.cluster_id, geographies)
        values = {
            "id": workload.id,
            "cluster_id": workload.cluster_id,
            "owner": workload.owner,
            "kind": workload.kind,
            "generation": workload.generation,
            "desired": workload.desired,
            "spec": workload.SerializeToString(),
            "revision": revision,
            "namespace": workload.placement.namespace,
        }
        named = {f"new_{name}": value for name, value in values.items()}
        await connection.execute(_UPSERT, named)
        return revision

    async def _leave(self, connection: AsyncConnection, workload_id: str, cluster_id: str) -> None:
        """Deletes a moved workload from its former cluster, keeping its generation there."""
        revision = await _advance_cluster(connection, cluster_id)
        if revision is None:
            await connection.execute(workloads.delete().where(_is(workload_id, cluster_id)))
            return
        await connection.execute(
            workloads.update()
            .where(_is(workload_id, cluster_id))
            .values(desired=pb.DESIRED_STATE_DELETED, revision=revision)
        )

    async def changes(self, cluster_id: str, session_id: str, after: int) -> ChangeBatch:
        """Workloads of a cluster beyond a revision, 0 for all of them.

        Raises Unauthenticated for a cluster that is gone, FailedPrecondition
        `session_superseded`.
        """
        head = await self._heads.get(cluster_id)
        if head is None:
            raise unregistered()
        if head.session_id != session_id:
            raise superseded()
        if after >= head.revision:
            return ChangeBatch((), after, head.spec_revision)
        columns = workloads.c
        query = (
            sa.select(columns.spec, columns.desired, columns.revision)
            .where(
                columns.cluster_id == cluster_id,
                columns.revision > after,
                columns.collected_at.is_(None),
            )
            .order_by(columns.revision)
        )
        async with self._database.autocommit() as connection:
            rows = (await connection.execute(query)).all()
        messages = []
        for row in rows:
            workload = pb.Workload.FromString(row.spec)
            # Differs for a workload that moved away.
            workload.desired = row.desired
            messages.append(workload.SerializeToString())
        # Revisions are committed in their order, so all up to the head's were seen.
        newest = max(head.revision, rows[-1].revision if rows else after)
        return ChangeBatch(tuple(messages), newest, head.spec_revision)

    async def statuses(self, owner: str, after: int) -> ChangeBatch:
        """Statuses of an owner's workloads beyond a status revision, 0 for all of them.

        Of a workload that moved, what the cluster that it left says is left out.
        """
        values = {"owner": owner, "after": after}
        async with self._database.autocommit() as connection:
            rows = (await connection.execute(TOLD, values)).all()
        return ChangeBatch(
            tuple(row.status for row in rows), rows[-1].status_revision if rows else after
        )

    async def report(
        self, cluster_id: str, session_id: str, statuses: Sequence[pb.WorkloadStatus]
    ) -> set[str]:
        """Stores what changed; returns the owners to wake.

        Statuses of another generation than the workload's are dropped. Raises
        FailedPrecondition `session_superseded`.
        """
        async with self._database.begin() as connection:
            await require_session(connection, cluster_id, session_id)
            policy = await _policy(connection, cluster_id)
            for status in statuses:
                bound_texts(status)
                bound_load(status)
                said, workload_id = status.endpoint, status.workload_id
                status.endpoint = endpoint(policy, said, cluster_id, workload_id)
            changed = await self._changed(connection, cluster_id, statuses)
            if not changed:
                return set()
            return await store(connection, cluster_id, changed)

    async def _changed(
        self, connection: AsyncConnection, cluster_id: str, statuses: Sequence[pb.WorkloadStatus]
    ) -> list[tuple[str, pb.WorkloadStatus]]:
        by_id = {status.workload_id: status for status in statuses}
        changed = []
        for row in await connection.execute(REPORTED, {"cluster": cluster_id, "ids": [*by_id]}):
            status = by_id[row.id]
            status.cluster_id = cluster_id
            settled = row.desired != pb.DESIRED_STATE_DELETED or row.collected_at is not None
            same = row.status == status.SerializeToString() and row.phase == status.phase
            if status.generation == row.generation and not (same and settled):
                changed.append((row.owner, status))
        return changed

    async def unregister(self, cluster_id: str) -> set[str]:
        """Unregisters a cluster and fails its workloads; returns the owners to wake.

        Raises NotFound.
        """
        async with self._database.begin() as connection:
            gone = await connection.execute(clusters.delete().where(clusters.c.id == cluster_id))
            if gone.rowcount == 0:
                raise NotFound(f"The cluster {cluster_id!r} does not exist.", param="cluster_id")
            for table in OF_A_CLUSTER:
                await connection.execute(table.delete().where(table.c.cluster_id == cluster_id))
            stream = records.cluster_topic(cluster_id)
            await connection.execute(counters.delete().where(counters.c.stream == stream))
            here = workloads.c.cluster_id == cluster_id
            query = sa.select(workloads).where(here, workloads.c.phase.not_in(TERMINAL_PHASES))
            rows = (await connection.execute(query)).all()
            lost = [(row.owner, _lost(row.id, row.generation, cluster_id)) for row in rows]
            owners = await store(connection, cluster_id, lost)
            await connection.execute(
                workloads.update().where(here).values(collected_at=sa.func.now())
            )
        return owners

    async def sweep(self) -> None:
        """Removes the rows of workloads some time after they were collected."""
        oldest = sa.func.now() - timedelta(seconds=records.COLLECTED_SECONDS)
        async with self._database.begin() as connection:
            await connection.execute(workloads.delete().where(workloads.c.collected_at < oldest))


async def _policy(connection: AsyncConnection, cluster_id: str) -> OperatorPolicy:
    row = await connection.execute(clusters.select().where(clusters.c.id == cluster_id))
    return policy_of(row.one())


async def _require_label(
    connection: AsyncConnection, cluster_id: str, geographies: Collection[str]
) -> None:
    """Raises FailedPrecondition unless the cluster, whose counter is locked, is labelled so."""
    query = sa.select(clusters.c.geography).where(clusters.c.id == cluster_id)
    label = (await connection.execute(query)).scalar_one()
    for geography in sorted(geographies):
        require_cluster(label, geography, cluster=cluster_id, param="workload.cluster_id")


def _lost(workload_id: str, generation: int, cluster_id: str) -> pb.WorkloadStatus:
    return pb.WorkloadStatus(
        workload_id=workload_id,
        generation=generation,
        phase=pb.PHASE_FAILED,
        reason="ClusterUnregistered",
        message="The cluster was unregistered.",
        cluster_id=cluster_id,
    )
