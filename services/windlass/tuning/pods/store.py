"""Queries of the pods that train and sample, and of those that hold devices for them."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from windlass.core.clock import now_seconds
from windlass.core.db import Database
from windlass.core.db.leases import held
from windlass.core.ids import new_id
from windlass.tuning.pods.tables import IS_LEASE, LEASE, LEASE_PREFIX, pods
from windlass.tuning.seats.tables import leases, seats
from windlass.tuning.storage.log import QUEUED
from windlass.tuning.storage.tables import operations

Row = sa.Row[Any]
RUNNING, DELETED = "running", "deleted"
# A server renews its pods thrice in this time.
LEASE_SECONDS = 30.0
_HELD_ON = sa.func.now() + sa.func.make_interval(0, 0, 0, 0, 0, 0, LEASE_SECONDS)
_RUNS = pods.c.desired == RUNNING
_UNTOLD = pods.c.put_generation < pods.c.generation
_AT_ONCE = 64


class PodStore:
    """Pods of every project; `holder` is the token of this server."""

    def __init__(self, database: Database, holder: str):
        self._database = database
        self._holder = holder

    async def begin(self, values: Mapping[str, Any]) -> Row:
        """Writes a pod that a cluster is to run."""
        async with self._database.begin() as connection:
            statement = pods.insert().values(self._begun(values)).returning(pods)
            made: Row = (await connection.execute(statement)).one()
            return made

    async def lease(self, values: Mapping[str, Any]) -> Row:
        """The pod that holds a project's devices in a cluster; writes it where there is none."""
        statement = insert(pods).values(self._begun(values))
        statement = statement.on_conflict_do_nothing(
            index_elements=[pods.c.project_id, pods.c.cluster_id], index_where=IS_LEASE
        )
        query = pods.select().where(
            IS_LEASE,
            pods.c.project_id == values["project_id"],
            pods.c.cluster_id == values["cluster_id"],
        )
        async with self._database.begin() as connection:
            await connection.execute(statement)
            found: Row = (await connection.execute(query)).one()
            return found

    async def open(self, lease_id: str, device: Mapping[str, Any]) -> None:
        """Writes the devices that a lease has now into the ledger, unless it is to end."""
        row = {"id": new_id("lease_"), "host": lease_id, **device}
        lasts = pods.select().where(_RUNS, pods.c.id == lease_id).with_for_update()
        async with self._database.begin() as connection:
            if (await connection.execute(lasts)).one_or_none() is not None:
                await connection.execute(insert(leases).values(row).on_conflict_do_nothing())

    async def end(self, pod_id: str) -> Sequence[Row]:
        """Has a pod deleted, and with a lease all that sits on it; returns what changes."""
        async with self._database.begin() as connection:
            return await _end(connection, pods.c.id == pod_id)

    async def end_empty(self, lease_id: str) -> Sequence[Row]:
        """Has a lease deleted on which nobody sits or waits to; returns what changes."""
        taken = sa.exists().where(seats.c.host == lease_id)
        async with self._database.begin() as connection:
            return await _end(connection, pods.c.id == lease_id, ~taken)

    async def renew(self) -> None:
        """Keeps the pods of this server."""
        statement = pods.update().where(held(pods, self._holder)).values(lease_until=_HELD_ON)
        async with self._database.autocommit() as connection:
            await connection.execute(statement)

    async def renew_leases(self, lease_ids: Collection[str]) -> set[str]:
        """Keeps leases that this server uses, whoever asked for them; returns those that last."""
        statement = (
            pods.update()
            .where(_RUNS, pods.c.id.in_(lease_ids))
            .values(lease_until=_HELD_ON)
            .returning(pods.c.id)
        )
        async with self._database.autocommit() as connection:
            return set(await connection.scalars(statement))

    async def end_orphans(self) -> None:
        """Has pods deleted whose servers have died, and seats on leases that have gone before."""
        lasts = sa.exists().where(pods.c.id == seats.c.host)
        stray = (
            seats.c.host.startswith(LEASE_PREFIX, autoescape=True),
            seats.c.lease_until < sa.func.now(),
            ~lasts,
        )
        async with self._database.begin() as connection:
            await _end(connection, pods.c.lease_until < sa.func.now())
            await connection.execute(seats.delete().where(*stray))

    async def refresh(self, before: int) -> None:
        """Asks for fresh URLs of what runs and was given its own before a time."""
        statement = (
            pods.update()
            .where(_RUNS, held(pods, self._holder), pods.c.urls_at < before, pods.c.role != LEASE)
            .values(urls_at=now_seconds(), generation=pods.c.generation + 1)
        )
        async with self._database.begin() as connection:
            await connection.execute(statement)

    async def untold(self) -> Sequence[Row]:
        """Pods that their clusters do not know as they should be."""
        query = pods.select().where(_UNTOLD).order_by(pods.c.created_at).limit(_AT_ONCE)
        async with self._database.autocommit() as connection:
            return (await connection.execute(query)).all()

    async def awaited(self, project_id: str, operation_id: str) -> str | None:
        """The pod of the run, or of the session's sampler, that is to carry an operation out."""
        query = (
            sa.select(pods.c.id)
            .join(operations, pods.c.owner.in_(OWNERS))
            .where(_RUNS, pods.c.project_id == project_id, pods.c.owner != "")
            .where(operations.c.id == operation_id, operations.c.project_id == project_id, QUEUED)
            # A replica that waits is no reason while an older one serves.
            .order_by(pods.c.created_at)
            .limit(1)
        )
        async with self._database.autocommit() as connection:
            found: str | None = await connection.scalar(query)
            return found

    async def awaited_seat(self, project_id: str, operation_id: str) -> Row | None:
        """The seat on a lease that a run, or its session's sampler, waits for or has."""
        query = (
            seats.select()
            .join(operations, seats.c.owner.in_(OWNERS))
            .where(seats.c.project_id == project_id, seats.c.owner != "")
            .where(operations.c.id == operation_id, operations.c.project_id == project_id, QUEUED)
            .where(sa.exists().where(pods.c.id == seats.c.host, IS_LEASE))
            .order_by(seats.c.sequence)
            .limit(1)
        )
        async with self._database.autocommit() as connection:
            return (await connection.execute(query)).one_or_none()

    async def mark_told(self, pod: Row) -> None:
        """Notes that the cluster knows a generation; it sees to an end by itself."""
        same = pods.c.id == pod.id, pods.c.generation == pod.generation
        async with self._database.begin() as connection:
            if pod.desired == DELETED:
                await connection.execute(pods.delete().where(*same))
                return
            await connection.execute(
                pods.update().where(*same).values(put_generation=pod.generation)
            )

    def _begun(self, values: Mapping[str, Any]) -> dict[str, Any]:
        return {
            **values, "desired": RUNNING, "generation": 1, "put_generation": 0,
            "created_at": now_seconds(), "urls_at": now_seconds(),
            "lease_owner": self._holder, "lease_until": _HELD_ON,
        }  # fmt: skip


# Who the processes that carry an operation out are for: its run, or its sampler's session.
OWNERS = (operations.c.run_id, sa.func.split_part(operations.c.sampler_id, ":", 1))


async def _end(connection: AsyncConnection, *which: sa.ColumnElement[bool]) -> Sequence[Row]:
    """Has pods deleted; with a lease go its devices, its seats, and those that sit there."""
    ended = list(await connection.execute(_ended(*which)))
    gone = [one.id for one in ended if one.role == LEASE]
    if gone:
        # In the order of admission: devices first.
        devices = leases.select().where(leases.c.host.in_(gone)).with_for_update()
        await connection.execute(devices)
        await connection.execute(seats.delete().where(seats.c.host.in_(gone)))
        await connection.execute(leases.delete().where(leases.c.host.in_(gone)))
        ended += await connection.execute(_ended(pods.c.lease_id.in_(gone)))
    return ended


def _ended(*which: sa.ColumnElement[bool]) -> Any:
    return (
        pods.update()
        .where(_RUNS, *which)
        .values(desired=DELETED, generation=pods.c.generation + 1)
        .returning(pods)
    )
