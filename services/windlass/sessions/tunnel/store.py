"""Every query on replicas, and on which of them holds a cluster's tunnel."""

import time
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert

from windlass.core.db import Database
from windlass.core.errors import FailedPrecondition
from windlass.sessions.tunnel.tables import replicas, tunnels

# Sessions of a cluster that are remembered as fenced.
FENCED_SESSIONS = 32
FORGET_SECONDS = 3600.0
FORGETS_EACH_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class StreamRoute:
    """Replica that holds a cluster's control stream, according to the rows."""

    replica_id: str
    address: str
    # Whether the replica has renewed its lease.
    live: bool
    # Since the control stream ended without a successor, or the replica's lease did; else 0.
    gone_seconds: float


def superseded() -> FailedPrecondition:
    """The error for the control stream of a fenced session."""
    return FailedPrecondition("Another agent took over this cluster.", reason="session_superseded")


def _after(seconds: float) -> sa.ColumnElement[datetime]:
    return sa.func.now() + timedelta(seconds=seconds)


def _announcement() -> sa.Select[str]:
    """Renews a lease and finds other live replicas, in one statement."""
    until = sa.func.now() + sa.bindparam("seconds", type_=sa.Interval)
    mine, address = sa.bindparam("id", type_=sa.Text), sa.bindparam("address", type_=sa.Text)
    row = insert(replicas).values(id=mine, address=address, lease_until=until)
    renewed = row.on_conflict_do_update(
        index_elements=["id"],
        set_={"lease_until": row.excluded.lease_until, "address": row.excluded.address},
    )
    living = sa.select(replicas.c.address).where(
        replicas.c.lease_until > sa.func.now(), replicas.c.id != mine
    )
    return living.add_cte(renewed.returning(replicas.c.id).cte("renewed"))


# Statements made once: to make one costs as much as to run it.
_ANNOUNCE = _announcement()
_FORGET = replicas.delete().where(replicas.c.lease_until < _after(-FORGET_SECONDS))
# Of clusters that nobody has reached for as long.
_LOST = tunnels.delete().where(tunnels.c.replica_id.not_in(sa.select(replicas.c.id)))


class RouteStore:
    """Replicas and tunnels."""

    def __init__(self, database: Database):
        self._database = database
        self._forget_at = 0.0

    async def announce(self, replica_id: str, address: str, *, seconds: float) -> list[str]:
        """Renews a replica's lease; returns the addresses of the others that live."""
        values = {"id": replica_id, "address": address, "seconds": timedelta(seconds=seconds)}
        async with self._database.autocommit() as connection:
            others = list((await connection.execute(_ANNOUNCE, values)).scalars())
            if time.monotonic() >= self._forget_at:
                await connection.execute(_FORGET)
                await connection.execute(_LOST)
                self._forget_at = time.monotonic() + FORGETS_EACH_SECONDS
            return others

    async def leave(self, replica_id: str) -> None:
        """Ends a replica's lease."""
        async with self._database.begin() as connection:
            await connection.execute(
                replicas.update()
                .where(replicas.c.id == replica_id)
                .values(lease_until=sa.func.now())
            )

    async def claim(self, cluster_id: str, replica_id: str, session_id: str) -> int:
        """Takes a cluster's tunnel over for a new control stream; returns its generation.

        Raises FailedPrecondition when a newer session of the cluster has come.
        """
        row_of = tunnels.c.cluster_id == cluster_id
        first = insert(tunnels).values(
            cluster_id=cluster_id,
            replica_id=replica_id,
            session_id=session_id,
            generation=0,
            claimed_at=sa.func.now(),
        )
        async with self._database.begin() as connection:
            await connection.execute(first.on_conflict_do_nothing())
            row = (await connection.execute(tunnels.select().where(row_of).with_for_update())).one()
            if session_id in row.fenced:
                raise superseded()
            fenced = row.fenced
            if row.session_id != session_id:
                fenced = [row.session_id, *fenced][:FENCED_SESSIONS]
            await connection.execute(
                tunnels.update()
                .where(row_of)
                .values(
                    replica_id=replica_id,
                    session_id=session_id,
                    fenced=fenced,
                    generation=row.generation + 1,
                    claimed_at=sa.func.now(),
                    lost_at=None,
                )
            )
        return int(row.generation) + 1

    async def lose(self, cluster_id: str, generation: int) -> None:
        """Notes that a control stream has ended, unless another has come."""
        async with self._database.begin() as connection:
            await connection.execute(
                tunnels.update()
                .where(tunnels.c.cluster_id == cluster_id, tunnels.c.generation == generation)
                .values(lost_at=sa.func.now())
            )

    async def newest(self, cluster_ids: Iterable[str]) -> dict[str, tuple[int, str]]:
        """The generation and session of the newest control stream of each of some clusters."""
        table = tunnels.c
        query = sa.select(table.cluster_id, table.generation, table.session_id).where(
            table.cluster_id.in_(list(cluster_ids))
        )
        async with self._database.autocommit() as connection:
            rows = await connection.execute(query)
            return {row.cluster_id: (row.generation, row.session_id) for row in rows}

    async def route(self, cluster_id: str) -> StreamRoute | None:
        """The last replica of a cluster's tunnel; None without a recent one."""
        source = sa.join(tunnels, replicas, tunnels.c.replica_id == replicas.c.id)
        return await self._route(source, tunnels.c.cluster_id == cluster_id, tunnels.c.lost_at)

    async def open_tunnels(self, *, within_seconds: float) -> list[str]:
        """Clusters whose control stream is open or ended within these seconds."""
        lost, lease = tunnels.c.lost_at, replicas.c.lease_until
        query = (
            sa.select(tunnels.c.cluster_id)
            .join(replicas, tunnels.c.replica_id == replicas.c.id)
            .where(
                lease > _after(-within_seconds),
                sa.or_(lost.is_(None), lost > _after(-within_seconds)),
            )
            .order_by(tunnels.c.cluster_id)
        )
        async with self._database.autocommit() as connection:
            return list((await connection.execute(query)).scalars())

    async def replica(self, replica_id: str) -> StreamRoute | None:
        """The address of a replica; None for one that is forgotten."""
        return await self._route(replicas, replicas.c.id == replica_id, sa.null())

    async def _route(
        self, source: sa.FromClause, where: sa.ColumnElement[bool], lost: sa.ColumnElement[Any]
    ) -> StreamRoute | None:
        since = sa.func.least(replicas.c.lease_until, lost)
        query = (
            sa.select(
                replicas.c.id,
                replicas.c.address,
                (replicas.c.lease_until > sa.func.now()).label("live"),
                sa.func.extract("epoch", sa.func.now() - since).label("gone"),
            )
            .select_from(source)
            .where(where)
        )
        async with self._database.autocommit() as connection:
            row = (await connection.execute(query)).first()
        if row is None:
            return None
        return StreamRoute(
            row.id, row.address, live=row.live, gone_seconds=max(0.0, float(row.gone))
        )
