"""The table of prefetches, and every query on it."""

from collections.abc import Sequence
from dataclasses import fields
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from windlass.core.db import Database, metadata
from windlass.core.db.leases import no_rows
from windlass.core.db.paging import newest_first
from windlass.core.errors import ResourceExhausted
from windlass.core.quotas import Quota, Quotas
from windlass.core.rpc.auth import Principal
from windlass.inference.loads import CLOCK
from windlass.inference.prefetches.prefetch import FAILED, MAX_OPEN, OPEN, READY, Prefetch

DAY_SECONDS = 86_400.0
# How long one that is over can be looked at.
KEPT_SECONDS = 7 * DAY_SECONDS

prefetches = sa.Table(
    "inference_prefetches",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("organization_id", sa.Text, nullable=False, index=True),
    sa.Column("project_id", sa.Text, nullable=False),
    sa.Column("owner_id", sa.Text, nullable=False),
    sa.Column("model", sa.Text, nullable=False),
    sa.Column("version_id", sa.Text, nullable=False),
    sa.Column("cluster_id", sa.Text, nullable=False),
    sa.Column("bytes", sa.BigInteger, nullable=False),
    sa.Column("draft_version_id", sa.Text, nullable=False, server_default=""),
    sa.Column("state", sa.Text, nullable=False),
    sa.Column("error", sa.Text, nullable=False),
    sa.Column("generation", sa.BigInteger, nullable=False),
    sa.Column("put_generation", sa.BigInteger, nullable=False),
    sa.Column("created_at", sa.Double, nullable=False),
    sa.Column("urls_at", sa.Double, nullable=False),
    sa.Column("finished_at", sa.Double, nullable=False),
    # Of all tries of a day, and when that day began.
    sa.Column("counted_bytes", sa.BigInteger, nullable=False, server_default="0"),
    sa.Column("counted_at", sa.Double, nullable=False, server_default="0"),
    sa.UniqueConstraint("project_id", "version_id", "cluster_id"),
)
_IS_OPEN = prefetches.c.state == OPEN
_UNSETTLED = sa.or_(_IS_OPEN, prefetches.c.put_generation < prefetches.c.generation)


def _to_prefetch(row: Any) -> Prefetch:
    return Prefetch(**{one.name: getattr(row, one.name) for one in fields(Prefetch)})


def _values(prefetch: Prefetch) -> dict[str, Any]:
    values = {one.name: getattr(prefetch, one.name) for one in fields(Prefetch)}
    times = {"created_at": CLOCK, "urls_at": CLOCK, "counted_at": CLOCK}
    return values | times | {"counted_bytes": prefetch.bytes}


def _same(prefetch: Prefetch) -> tuple[sa.ColumnElement[bool], ...]:
    """The row of a prefetch, unless it has changed."""
    return prefetches.c.id == prefetch.id, prefetches.c.generation == prefetch.generation


class PrefetchStore:
    """Prefetches of every project."""

    def __init__(self, database: Database, quotas: Quotas):
        self._database = database
        self._quotas = quotas
        self.is_settled = no_rows(database, _UNSETTLED)

    async def put(self, wished: Sequence[Prefetch], *, cut: bool = False) -> list[Prefetch]:
        """Begins the prefetches of one project, or answers those of the same that are open.

        With `cut`, only as many as the project may still have. Raises ResourceExhausted,
        PermissionDenied `quota_exceeded`.
        """
        async with self._database.begin() as connection:
            scope = wished[0].organization_id, wished[0].project_id
            bounds = await self._quotas.hold(connection, Quota.FETCHED_BYTES, *scope)
            # So long as nobody wishes for any, the old ones do no harm.
            old = prefetches.c.finished_at < CLOCK - KEPT_SECONDS
            await connection.execute(prefetches.delete().where(old, sa.not_(_UNSETTLED)))
            if cut:
                wished = await _fitting(connection, wished)
            made = [await self._begin(connection, one) for one in wished]
            open_, organization, project = await _counted(connection, *scope)
            bounds.require(organization=organization, project=project)
            if open_ > MAX_OPEN:
                raise ResourceExhausted(
                    f"The project would have {open_} unfinished prefetches; {MAX_OPEN} are "
                    "allowed.",
                    reason="too_many_prefetches",
                )
        return made

    @staticmethod
    async def _begin(connection: AsyncConnection, wished: Prefetch) -> Prefetch:
        new = insert(prefetches).values(_values(wished))
        of_today = prefetches.c.counted_at > CLOCK - DAY_SECONDS
        counted = sa.case((of_today, prefetches.c.counted_bytes), else_=0)
        again = {
            "state": OPEN,
            "error": "",
            "bytes": wished.bytes,
            "draft_version_id": wished.draft_version_id,
            "generation": prefetches.c.generation + 1,
            "created_at": CLOCK,
            "urls_at": CLOCK,
            "finished_at": 0.0,
            "counted_bytes": counted + wished.bytes,
            "counted_at": sa.case((of_today, prefetches.c.counted_at), else_=CLOCK),
        }
        key = ("project_id", "version_id", "cluster_id")
        statement = new.on_conflict_do_update(
            index_elements=list(key), set_=again, where=sa.not_(_IS_OPEN)
        )
        await connection.execute(statement)
        same = [prefetches.c[name] == getattr(wished, name) for name in key]
        return _to_prefetch((await connection.execute(prefetches.select().where(*same))).one())

    async def newest(self, caller: Principal, *, after: str, limit: int) -> Sequence[Prefetch]:
        """The prefetches of the caller's project, of models that it may use, newest first."""
        ours = prefetches.c.project_id == caller.require_project()
        if caller.models is not None:
            ours = sa.and_(ours, caller.models.condition(prefetches.c.model))
        query = newest_first(
            prefetches.select().where(ours),
            prefetches.c.created_at,
            prefetches.c.id,
            after=after,
            of=ours,
        )
        async with self._database.autocommit() as connection:
            return [_to_prefetch(row) for row in await connection.execute(query.limit(limit))]

    async def unsettled(self) -> tuple[float, list[Prefetch]]:
        """The time, and the prefetches that something is to be done for."""
        query = prefetches.select().where(_UNSETTLED).order_by(prefetches.c.created_at)
        async with self._database.autocommit() as connection:
            now = (await connection.execute(sa.select(CLOCK))).scalar_one()
            return now, [_to_prefetch(row) for row in await connection.execute(query)]

    async def brought(self) -> frozenset[tuple[str, str]]:
        """Clusters and versions whose files were brought there within the days that rows stay."""
        columns = prefetches.c.cluster_id, prefetches.c.version_id
        are_there = prefetches.c.state == READY, prefetches.c.finished_at > CLOCK - KEPT_SECONDS
        async with self._database.autocommit() as connection:
            rows = await connection.execute(sa.select(*columns).where(*are_there))
            return frozenset((row.cluster_id, row.version_id) for row in rows)

    async def finish(self, prefetch: Prefetch, state: str, error: str) -> None:
        """Notes that it is over, so that the cluster may forget it."""
        values = {"state": state, "error": error, "finished_at": CLOCK}
        await self._change(prefetch, values | {"generation": prefetch.generation + 1})

    async def renew(self, prefetch: Prefetch) -> None:
        """Asks for fresh URLs."""
        await self._change(prefetch, {"urls_at": CLOCK, "generation": prefetch.generation + 1})

    async def mark_put(self, prefetch: Prefetch) -> None:
        """Notes that the cluster knows this generation."""
        await self._change(prefetch, {"put_generation": prefetch.generation})

    async def lose(self, prefetch: Prefetch, error: str) -> None:
        """Notes that it has failed where no cluster is to be told."""
        values: dict[str, Any] = {"put_generation": prefetch.generation}
        if prefetch.is_open:
            values |= {"state": FAILED, "error": error, "finished_at": CLOCK}
        await self._change(prefetch, values)

    async def _change(self, prefetch: Prefetch, values: dict[str, Any]) -> None:
        async with self._database.begin() as connection:
            await connection.execute(prefetches.update().where(*_same(prefetch)).values(values))


async def _fitting(connection: AsyncConnection, wished: Sequence[Prefetch]) -> list[Prefetch]:
    """Returns one project's wishes that are open, and the first of the others; at least one."""
    ours = prefetches.c.project_id == wished[0].project_id
    query = sa.select(prefetches.c.version_id, prefetches.c.cluster_id).where(ours, _IS_OPEN)
    there = {(row.version_id, row.cluster_id) for row in await connection.execute(query)}
    new = [one for one in wished if (one.version_id, one.cluster_id) not in there]
    beyond = {one.id for one in new[max(0, MAX_OPEN - len(there)) :]}
    return [one for one in wished if one.id not in beyond] or list(wished[:1])


async def _counted(
    connection: AsyncConnection, organization_id: str, project_id: str
) -> tuple[int, int, int]:
    """Open ones of a project, and the bytes of a day of its organization and its own."""
    table, ours = prefetches.c, prefetches.c.project_id == project_id
    of_today = table.created_at > CLOCK - DAY_SECONDS
    query = sa.select(
        sa.func.count().filter(ours, _IS_OPEN),
        sa.func.coalesce(sa.func.sum(table.counted_bytes).filter(of_today), 0),
        sa.func.coalesce(sa.func.sum(table.counted_bytes).filter(of_today, ours), 0),
    ).where(table.organization_id == organization_id)
    open_, organization, project = (await connection.execute(query)).one()
    return int(open_), int(organization), int(project)
