"""Every query on clusters, their keys and their sessions."""

from collections.abc import Sequence
from datetime import timedelta
from functools import cache
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from windlass.clusters import domain
from windlass.clusters.domain import Cluster
from windlass.clusters.tables import clusters, counters, credentials, registration_keys, workloads
from windlass.core.db import Database
from windlass.core.errors import AlreadyExists, FailedPrecondition, NotFound, Unauthenticated
from windlass.core.ids import new_name


def unregistered() -> Unauthenticated:
    """What an agent of a cluster that is gone hears."""
    return Unauthenticated("This cluster is not registered.", reason="cluster_unregistered")


def superseded() -> FailedPrecondition:
    """What a fenced session hears."""
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
            workloads.c.phase.not_in(domain.TERMINAL),
            workloads.c.collected_at.is_(None),
        )
        .lateral("placed")
    )
    live = clusters.c.last_seen_at > sa.func.now() - _seconds(domain.LIVE_SECONDS)
    return sa.select(
        clusters, sa.func.coalesce(live, sa.false()).label("live"), placed.c.jobs, placed.c.engines
    ).join_from(clusters, placed, sa.true())


def _cluster(row: Any) -> Cluster:
    return Cluster(
        id=row.id,
        name=row.name,
        created_at=int(row.created_at.timestamp()),
        last_seen_at=int(row.last_seen_at.timestamp()) if row.last_seen_at else 0,
        live=row.live,
        agent_version=row.agent_version,
        executor=row.executor,
        capacity=row.capacity,
        placed_jobs=row.jobs,
        placed_engines=row.engines,
    )


class ClusterStore:
    """Clusters, registration keys, credentials and sessions."""

    def __init__(self, database: Database):
        self._database = database

    async def _insert(self, connection: AsyncConnection, name: str) -> str | None:
        """The new cluster's id; None when the name is taken."""
        statement = (
            insert(clusters)
            .values(id=new_name("cluster-"), name=name)
            .on_conflict_do_nothing(index_elements=["name"])
            .returning(clusters.c.id)
        )
        found = (await connection.execute(statement)).first()
        if found is None:
            return None
        await connection.execute(
            counters.insert().values(stream=domain.cluster_topic(found.id), revision=0)
        )
        return str(found.id)

    async def register(self, name: str, key_digest: bytes) -> str:
        """A new cluster and the key that enrols its agent; raises AlreadyExists."""
        async with self._database.begin() as connection:
            cluster_id = await self._insert(connection, name)
            if cluster_id is None:
                raise AlreadyExists(f"There is a cluster {name!r} already.", param="name")
            await connection.execute(
                registration_keys.insert().values(
                    digest=key_digest,
                    cluster_id=cluster_id,
                    expires_at=sa.func.now() + _seconds(domain.REGISTRATION_SECONDS),
                )
            )
        return cluster_id

    async def enroll(self, key_digest: bytes, credential_digest: bytes) -> str:
        """Spends a registration key for a credential; raises Unauthenticated."""
        keys = registration_keys.c
        spend = (
            registration_keys.update()
            .where(
                keys.digest == key_digest, keys.used_at.is_(None), keys.expires_at > sa.func.now()
            )
            .values(used_at=sa.func.now())
            .returning(keys.cluster_id)
        )
        async with self._database.begin() as connection:
            row = (await connection.execute(spend)).first()
            if row is None:
                raise Unauthenticated(
                    "The registration key is unknown, used or expired.",
                    reason="invalid_registration_key",
                )
            await connection.execute(
                credentials.insert().values(digest=credential_digest, cluster_id=row.cluster_id)
            )
        return str(row.cluster_id)

    async def enroll_local(self, name: str, credential_digest: bytes) -> str:
        """A new cluster with its credential; a name that is taken gets a number."""
        async with self._database.begin() as connection:
            cluster_id, number = await self._insert(connection, name), 2
            while cluster_id is None:
                suffix = f"-{number}"
                cluster_id = await self._insert(connection, name[: 63 - len(suffix)] + suffix)
                number += 1
            await connection.execute(
                credentials.insert().values(digest=credential_digest, cluster_id=cluster_id)
            )
        return cluster_id

    async def authenticate(self, credential_digest: bytes) -> tuple[str, str]:
        """The id and name of a credential's cluster; raises Unauthenticated."""
        query = (
            sa.select(clusters.c.id, clusters.c.name)
            .join_from(credentials, clusters, clusters.c.id == credentials.c.cluster_id)
            .where(credentials.c.digest == credential_digest)
        )
        async with self._database.read() as connection:
            row = (await connection.execute(query)).first()
        if row is None:
            raise unregistered()
        return row.id, row.name

    async def clusters(self, *, live_only: bool = False) -> Sequence[Cluster]:
        """All clusters by name."""
        async with self._database.read() as connection:
            rows = await connection.execute(_select().order_by(clusters.c.name))
            found = [_cluster(row) for row in rows]
        return [cluster for cluster in found if cluster.live or not live_only]

    async def cluster(self, cluster_id: str) -> Cluster:
        """One cluster; raises NotFound."""
        async with self._database.read() as connection:
            row = (await connection.execute(_select().where(clusters.c.id == cluster_id))).first()
        if row is None:
            raise NotFound(f"No cluster {cluster_id!r}.", param="cluster_id")
        return _cluster(row)

    async def take_over(
        self, cluster_id: str, session_id: str, *, agent_version: str, executor: str
    ) -> None:
        """Makes a session the current one; raises FailedPrecondition for one that was fenced."""
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
                fenced = [row.session_id, *fenced][: domain.FENCED_SESSIONS]
            await connection.execute(
                clusters.update()
                .where(row_of)
                .values(
                    session_id=session_id,
                    fenced=fenced,
                    agent_version=agent_version,
                    executor=executor,
                )
            )

    async def heartbeat(self, cluster_id: str, session_id: str, capacity: bytes) -> bool:
        """Notes that the agent lives; False for a session that is not the current one."""
        statement = (
            clusters.update()
            .where(clusters.c.id == cluster_id, clusters.c.session_id == session_id)
            .values(last_seen_at=sa.func.now(), capacity=capacity)
        )
        async with self._database.begin() as connection:
            return (await connection.execute(statement)).rowcount == 1

    async def forget_keys(self) -> None:
        """Drops registration keys a day after they expired."""
        async with self._database.begin() as connection:
            await connection.execute(
                registration_keys.delete().where(
                    registration_keys.c.expires_at < sa.func.now() - _seconds(86400)
                )
            )


async def require_session(
    connection: AsyncConnection, cluster_id: str, session_id: str, *, lock: bool
) -> None:
    """Raises unless the session is current; `lock` keeps it so until the commit."""
    query = sa.select(clusters.c.session_id).where(clusters.c.id == cluster_id)
    if lock:
        query = query.with_for_update(read=True)
    row = (await connection.execute(query)).first()
    if row is None:
        raise unregistered()
    if row.session_id != session_id:
        raise superseded()
