"""Every query on clusters and their sessions."""

from collections.abc import Callable, Sequence
from dataclasses import asdict
from datetime import timedelta
from functools import cache
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from windlass.clusters.domain import records
from windlass.clusters.domain.policy import OperatorPolicy
from windlass.clusters.domain.records import Cluster, Observed
from windlass.clusters.storage.tables import AMOUNTS, clusters, counters, observations, workloads
from windlass.core.db import Database
from windlass.core.errors import FailedPrecondition, NotFound, Unauthenticated
from windlass.core.ids import new_name
from windlass.core.rpc import audited
from windlass.workload_phases import TERMINAL_PHASES


def unregistered() -> Unauthenticated:
    """The error for the agent of an unregistered cluster."""
    return Unauthenticated("This cluster is not registered.", reason="cluster_unregistered")


def superseded() -> FailedPrecondition:
    """The error for a fenced session."""
    return FailedPrecondition("Another agent took over this cluster.", reason="session_superseded")


def _seconds(value: float) -> timedelta:
    return timedelta(seconds=value)


@cache
def _select() -> sa.Select[Any]:
    placed = (
        sa.select(
            sa.func.count().filter(workloads.c.kind == 1).label("jobs"),
            sa.func.count().filter(workloads.c.kind == 2).label("engines"),
        )
        .where(
            workloads.c.cluster_id == clusters.c.id,
            workloads.c.phase.not_in(TERMINAL_PHASES),
            workloads.c.collected_at.is_(None),
        )
        .lateral("placed")
    )
    live = clusters.c.last_seen_at > sa.func.now() - _seconds(records.LIVE_SECONDS)
    observed = (observations.c[name] for name in AMOUNTS)
    return (
        sa.select(
            clusters,
            sa.func.coalesce(live, sa.false()).label("live"),
            *(placed.c.jobs, placed.c.engines, observations.c.observed_at, *observed),
        )
        .join_from(clusters, placed, sa.true())
        .outerjoin(observations, observations.c.cluster_id == clusters.c.id)
    )


def _cluster(row: Any) -> Cluster:
    return Cluster(
        id=row.id,
        name=row.name,
        created_at=int(row.created_at.timestamp()),
        last_seen_at=int(row.last_seen_at.timestamp()) if row.last_seen_at else 0,
        live=row.live,
        agent_version=row.agent_version,
        policy=policy_of(row),
        reported_executor=row.reported_executor,
        capacity=row.capacity,
        placed_jobs=row.jobs,
        placed_engines=row.engines,
        observed=_observed(row) if row.observed_at else None,
    )


def policy_of(row: Any) -> OperatorPolicy:
    """The policy in a cluster's row."""
    return OperatorPolicy(
        executor=row.executor,
        roles=tuple(row.roles),
        shared=row.shared,
        addresses=tuple(row.addresses),
        max_slots=row.max_slots,
        max_engine_slots=row.max_engine_slots,
        geography=row.geography,
        run_folder=row.run_folder,
    )


def _columns(policy: OperatorPolicy) -> dict[str, Any]:
    values = asdict(policy)
    return values | {name: list(values[name]) for name in ("roles", "addresses")}


def _observed(row: Any) -> Observed:
    return Observed(int(row.observed_at.timestamp()), *(getattr(row, name) for name in AMOUNTS))


class ClusterStore:
    """Clusters and their sessions."""

    def __init__(self, database: Database):
        self._database = database

    async def insert(
        self, connection: AsyncConnection, name: str, policy: OperatorPolicy
    ) -> str | None:
        """The new cluster's id; None when the name is taken."""
        statement = (
            insert(clusters)
            .values(id=new_name("cluster-"), name=name, **_columns(policy))
            .on_conflict_do_nothing(index_elements=["name"])
            .returning(clusters.c.id)
        )
        found = (await connection.execute(statement)).first()
        if found is None:
            return None
        await connection.execute(
            counters.insert().values(stream=records.cluster_topic(found.id), revision=0)
        )
        return str(found.id)

    async def clusters(self) -> Sequence[Cluster]:
        """All clusters, newest first."""
        async with self._database.autocommit() as connection:
            rows = await connection.execute(
                _select().order_by(clusters.c.created_at.desc(), clusters.c.id)
            )
            return [_cluster(row) for row in rows]

    async def cluster(self, cluster_id: str) -> Cluster:
        """Returns one cluster; raises NotFound."""
        async with self._database.autocommit() as connection:
            row = (await connection.execute(_select().where(clusters.c.id == cluster_id))).first()
        if row is None:
            raise NotFound(f"The cluster {cluster_id!r} does not exist.", param="cluster_id")
        return _cluster(row)

    async def decide(self, cluster_id: str, change: Callable[[Cluster], OperatorPolicy]) -> None:
        """Changes a cluster's policy; raises NotFound, and what `change` does."""
        row_of = clusters.c.id == cluster_id
        async with self._database.begin() as connection:
            lock = sa.select(clusters.c.id).where(row_of).with_for_update()
            if (await connection.execute(lock)).first() is None:
                raise NotFound(f"The cluster {cluster_id!r} does not exist.", param="cluster_id")
            found = _cluster((await connection.execute(_select().where(row_of))).one())
            policy = change(found)
            audited.change(found.policy, policy)
            values = _columns(policy)
            if policy.geography != found.policy.geography:
                values["relabelled"] = True
                # Workloads that are put by the old label come first, and are found by what follows.
                mine = counters.c.stream == records.cluster_topic(cluster_id)
                await connection.execute(
                    counters.update().where(mine).values(revision=counters.c.revision + 1)
                )
            await connection.execute(clusters.update().where(row_of).values(values))

    async def take_over(
        self, cluster_id: str, session_id: str, *, agent_version: str, executor: str
    ) -> OperatorPolicy:
        """Makes a session the current one; returns the cluster's policy.

        Raises FailedPrecondition `session_superseded` for a session that was fenced, and
        `executor_mismatch` for another executor than the cluster is registered for.
        """
        await self._note_executor(cluster_id, executor)
        row_of = clusters.c.id == cluster_id
        async with self._database.begin() as connection:
            row = (
                await connection.execute(clusters.select().where(row_of).with_for_update())
            ).first()
            if row is None:
                raise unregistered()
            if session_id in row.fenced:
                raise superseded()
            fenced = row.fenced
            if row.session_id not in ("", session_id):
                fenced = [row.session_id, *fenced][: records.FENCED_SESSIONS]
            await connection.execute(
                clusters.update()
                .where(row_of)
                .values(session_id=session_id, fenced=fenced, agent_version=agent_version)
            )
        return policy_of(row)

    async def _note_executor(self, cluster_id: str, executor: str) -> None:
        """Stores the agent's executor; refuses one other than the registered executor."""
        row_of = clusters.c.id == cluster_id
        update = clusters.update().where(row_of).values(reported_executor=executor)
        async with self._database.begin() as connection:
            row = (await connection.execute(update.returning(clusters.c.executor))).first()
        if row is not None and executor not in ("", row.executor):
            raise FailedPrecondition(
                f"This cluster is registered for the executor {row.executor}, not {executor}; "
                "see `windlass clusters update`.",
                reason="executor_mismatch",
            )

    async def heartbeat(self, cluster_id: str, session_id: str, capacity: bytes) -> bool:
        """Notes that the agent lives; False for a session that is not the current one.

        Raises Unauthenticated where the cluster went while the call was under way.
        """
        statement = (
            clusters.update()
            .where(clusters.c.id == cluster_id, clusters.c.session_id == session_id)
            .values(last_seen_at=sa.func.now(), capacity=capacity)
        )
        known = sa.select(clusters.c.id).where(clusters.c.id == cluster_id)
        async with self._database.begin() as connection:
            if (await connection.execute(statement)).rowcount == 1:
                return True
            if (await connection.execute(known)).first() is None:
                raise unregistered()
        return False


_SESSION = (
    sa.select(clusters.c.session_id, clusters.c.spec_revision)
    .where(clusters.c.id == sa.bindparam("cluster"))
    .with_for_update(read=True)
)


async def require_session(connection: AsyncConnection, cluster_id: str, session_id: str) -> int:
    """The revision of the cluster's spec; raises unless the session is current.

    Both stay so until the commit.
    """
    row = (await connection.execute(_SESSION, {"cluster": cluster_id})).first()
    if row is None:
        raise unregistered()
    if row.session_id != session_id:
        raise superseded()
    return int(row.spec_revision)
