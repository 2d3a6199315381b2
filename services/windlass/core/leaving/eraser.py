"""Each service's part of erasures: its own objects and rows, in batches, by leased work."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from windlass.core import telemetry
from windlass.core.app import App
from windlass.core.clock import now_seconds
from windlass.core.db import Database
from windlass.core.db.leases import claim, held, no_rows, released, run_loop
from windlass.core.killpoints import reach
from windlass.core.leaving.claims import (
    Fate,
    LeavingClaims,
    ObjectClaim,
    Prepare,
    Scope,
    TableClaim,
)
from windlass.core.leaving.tables import DONE, PENDING, erasures, scope_of, steps
from windlass.core.objects import ObjectStore

log = telemetry.logger("leaving")
TOPIC = _NAME = "erasures"
LEASE_SECONDS, RENEW_SECONDS = 120.0, 30.0
POLL_SECONDS = 2.0
ROWS, PREFIXES = 500, 200
# Times what a statement took.
PAUSE = 2
LONGEST_PAUSE = 300
_MESSAGE_LENGTH = 500
_LEASED: dict[str, Any] = {
    "lease_until": sa.func.now() + sa.func.make_interval(0, 0, 0, 0, 0, 0, LEASE_SECONDS)
}


@dataclass(frozen=True)
class ErasurePart:
    """A service's claims, and the `Prepare` that must come before their erasure."""

    claims: LeavingClaims
    prepare: Prepare | None = None


def erases(app: App, claims: LeavingClaims, prepare: Prepare | None = None) -> None:
    """Runs a service's part of erasures in this process.

    One loop has the parts of all its services, one after the other: together they would take the
    time of all requests.
    """
    if not app.erasing:
        app.background(_NAME, lambda: _run(app))
    app.erasing[claims.service] = ErasurePart(claims, prepare)


async def _run(app: App) -> None:
    eraser = Eraser(app.database, app.objects, app.erasing)
    listener = app.wake.listen(TOPIC)

    async def once() -> bool:
        worked = await eraser.once()
        if worked:
            while await eraser.once():
                pass
            app.wake.touch(TOPIC)
        return worked

    await run_loop(_NAME, listener, once, poll_seconds=POLL_SECONDS, resting=eraser.has_nothing)


class LeaseLost(Exception):
    """Another process goes on with the step."""


class Eraser:
    """Claims steps of some services, and does them; what another process began it continues."""

    def __init__(self, database: Database, objects: ObjectStore, parts: Mapping[str, ErasurePart]):
        """`parts` are by the service's name."""
        self._database = database
        self._objects = objects
        self._parts = parts
        mine = sa.and_(steps.c.service.in_(list(parts)), steps.c.state == PENDING)
        self._mine = mine
        self.has_nothing = no_rows(database, mine)

    async def once(self) -> bool:
        """Does one step as far as it can; returns whether there was one."""
        due = sa.and_(self._mine, steps.c.not_before <= now_seconds())
        token, rows = await claim(self._database, steps, due, limit=1, seconds=LEASE_SECONDS)
        for row in rows:
            work = _Step(self._database, row, token)
            try:
                scope = await work.scope()
                part = self._parts[row.service]
                waits_for = await part.prepare(scope) if part.prepare else ""
                if waits_for:
                    await work.rest(waits_for, seconds=2)
                    continue
                async with work.kept():
                    await self._erase(work, scope, part.claims)
                await work.update(state=DONE, message="", **released())
                reach(f"erasures.{work.row.service}.done")
            except LeaseLost:
                log.info("erasure_taken_over", step=row.id)
            except Exception as error:
                log.warning("erasure_failed", step=row.id, exc_info=error)
                seconds = min(2**row.tries, LONGEST_PAUSE)
                await work.rest(type(error).__name__, seconds=seconds, tries=row.tries + 1)
        return bool(rows)

    async def _erase(self, work: "_Step", scope: Scope, claims: LeavingClaims) -> None:
        await self._settle(work)
        for kept in claims.objects:
            await self._erase_objects(work, kept, scope)
        async with self._database.patient() as connection:
            for table in claims.tables:
                await self._erase_rows(connection, work, table, scope)

    async def _erase_objects(self, work: "_Step", kept: ObjectClaim, scope: Scope) -> None:
        if kept.prefixes is None:
            return
        found = kept.prefixes(scope).subquery()
        prefix, after = next(iter(found.c)), ""
        while True:
            query = sa.select(prefix).where(prefix > after).order_by(prefix).limit(PREFIXES)
            async with self._database.autocommit() as connection:
                prefixes = (await connection.execute(query)).scalars().all()
            if not prefixes:
                return
            await self._remove(work, prefixes)
            after = prefixes[-1]

    async def _remove(self, work: "_Step", prefixes: Sequence[str]) -> None:
        """Counts first, so that what a killed process removed is counted by the next."""
        number = size = 0
        present = []
        for prefix in prefixes:
            objects, taken = await self._objects.count(prefix)
            if objects:
                number, size = number + objects, size + taken
                present.append(prefix)
        if present:
            await work.update(batch={"prefixes": present, "objects": number, "bytes": size})
            reach(f"erasures.{work.row.service}.counted")
            await self._settle(work)

    async def _settle(self, work: "_Step") -> None:
        batch = work.row.batch if work.batch is None else work.batch
        if not batch:
            return
        for prefix in batch["prefixes"]:
            await self._objects.delete_prefix(prefix)
        reach(f"erasures.{work.row.service}.removed")
        await work.update(
            batch=None,
            objects=steps.c.objects + batch["objects"],
            bytes=steps.c.bytes + batch["bytes"],
        )

    async def _erase_rows(
        self, connection: AsyncConnection, work: "_Step", claimed: TableClaim, scope: Scope
    ) -> None:
        where = claimed.where(scope) if claimed.where else None
        if claimed.fate is Fate.NOBODYS or where is None:
            return
        if claimed.fate is Fate.IDS:
            if not claimed.values:
                return
            where = sa.and_(where, _named(claimed))
        statement = work.batch_of(claimed, where)
        clock = asyncio.get_running_loop().time
        changed = ROWS
        while changed == ROWS:
            began = clock()
            changed = (await connection.execute(statement)).scalar_one()
            reach(f"erasures.{work.row.service}.rows")
            # Time is left to the others who use the database and this process.
            await asyncio.sleep(PAUSE * (clock() - began))


def _named(claimed: TableClaim) -> sa.ColumnElement[bool]:
    if claimed.named is not None:
        return claimed.named
    columns = claimed.table.c
    return sa.or_(*(columns[name].is_distinct_from(to) for name, to in claimed.values.items()))


class _Step:
    """A step whose lease this process holds; each change renews it, and raises LeaseLost."""

    def __init__(self, database: Database, row: sa.Row[Any], token: str):
        self._database = database
        self.row = row
        self.batch: dict[str, Any] | None = None
        self._mine = sa.and_(steps.c.id == row.id, held(steps, token))

    async def scope(self) -> Scope:
        query = erasures.select().where(erasures.c.id == self.row.erasure_id)
        async with self._database.autocommit() as connection:
            return scope_of((await connection.execute(query)).one())

    @asynccontextmanager
    async def kept(self) -> AsyncIterator[None]:
        """Renews the lease until the end of the block, however long its work takes."""
        renewing = asyncio.create_task(self._renew())
        try:
            yield
        finally:
            renewing.cancel()
            await asyncio.gather(renewing, return_exceptions=True)

    async def _renew(self) -> None:
        while True:
            await asyncio.sleep(RENEW_SECONDS)
            await self.update()

    async def update(self, **values: Any) -> None:
        async with self._database.begin() as connection:
            await self._write(connection, values)
        if "batch" in values:
            self.batch = values["batch"] or {}

    def batch_of(self, claimed: TableClaim, where: sa.ColumnElement[bool]) -> sa.Select[int]:
        """Returns the statement that erases some rows, counts them here, and tells how many.

        One statement, since each further one would keep its rows locked for a round trip more. It
        erases nothing without the lease, and does not wait for the disk: rows that a crash of the
        database brings back come with the count before them.
        """
        table = claimed.table
        unsynced = sa.func.set_config("synchronous_commit", "off", True)
        lease = sa.select(steps.c.id, unsynced).where(self._mine).with_for_update().cte("lease")
        ctid: sa.ColumnElement[Any] = sa.literal_column(f"{table.name}.ctid")
        some = sa.select(ctid).where(where, sa.exists(sa.select(lease.c.id))).limit(ROWS)
        mine = ctid == sa.any_(sa.func.array(some.scalar_subquery()))
        change: sa.Delete | sa.Update = table.delete().where(mine)
        if claimed.fate is Fate.IDS:
            change = table.update().where(mine).values(claimed.values)
        changed = change.returning(ctid).cte("changed")
        number = sa.select(sa.func.count()).select_from(changed).scalar_subquery()
        name = sa.cast(table.name, sa.Text)
        before = sa.func.coalesce(steps.c.rows[table.name].astext.cast(sa.BigInteger), 0)
        counted = steps.c.rows.concat(sa.func.jsonb_build_object(name, before + number))
        count = steps.update().where(self._mine, number > 0).values(rows=counted, **_LEASED)
        return sa.select(number.label("changed")).add_cte(count.cte("counted"))

    async def rest(self, message: str, *, seconds: int, **values: Any) -> None:
        await self.update(
            message=message[:_MESSAGE_LENGTH],
            not_before=now_seconds() + seconds,
            **values,
            **released(),
        )

    async def _write(self, connection: Any, values: dict[str, Any]) -> None:
        statement = steps.update().where(self._mine).values(_LEASED | values)
        if (await connection.execute(statement)).rowcount != 1:
            raise LeaseLost
