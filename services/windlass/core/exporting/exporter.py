"""One service's part of exports: copies of its own rows and objects, by leased work."""

import sqlalchemy as sa

from windlass.core import telemetry
from windlass.core.app import App
from windlass.core.clock import now_seconds
from windlass.core.db import Database
from windlass.core.db.leases import claim, no_rows, released, run_loop
from windlass.core.exporting.columns import exported_columns, exported_rows
from windlass.core.exporting.lines import TableLines
from windlass.core.exporting.step import LEASE_SECONDS, ExportLeaseLost, ExportStep
from windlass.core.exporting.tables import DONE, PENDING, TOPIC, collects, export_steps
from windlass.core.killpoints import reach
from windlass.core.leaving.claims import LeavingClaims, ObjectClaim, Scope, TableClaim
from windlass.core.objects import (
    ObjectDamaged,
    ObjectNotFound,
    ObjectStore,
    SealingKeyUnavailable,
)
from windlass.core.objects.sealing import project_of

log = telemetry.logger("exporting")
POLL_SECONDS = 2.0
PREFIXES = 200
LONGEST_PAUSE = 300
# Then what a key that is away seals is left out: the key may be destroyed.
TRIES_FOR_KEYS = 8


def exports_by(app: App, claims: LeavingClaims) -> None:
    """Runs a service's part of exports in this process."""
    name = f"{claims.service}.exports"
    exporter, listener = Exporter(app.database, app.objects, claims), app.wake.listen(TOPIC)

    async def once() -> bool:
        worked = await exporter.once()
        if worked:
            app.wake.touch(TOPIC)
        return worked

    app.background(
        name,
        lambda: run_loop(
            name, listener, once, poll_seconds=POLL_SECONDS, resting=exporter.has_nothing
        ),
    )


class Exporter:
    """Claims steps of one service, and does them; what another process began it continues."""

    def __init__(self, database: Database, objects: ObjectStore, claims: LeavingClaims):
        self._database = database
        self._objects = objects
        self._claims = claims
        mine = sa.and_(export_steps.c.service == claims.service, export_steps.c.state == PENDING)
        self._mine = sa.and_(mine, collects(export_steps.c.export_id))
        self.has_nothing = no_rows(database, mine)

    async def once(self) -> bool:
        """Does one step; returns whether there was one."""
        due = sa.and_(self._mine, export_steps.c.not_before <= now_seconds())
        token, rows = await claim(self._database, export_steps, due, limit=1, seconds=LEASE_SECONDS)
        for row in rows:
            work = ExportStep(self._database, self._objects, row, token)
            try:
                await self._collect(work)
                await work.update(state=DONE, message=work.told(), **released())
                reach(f"exports.{self._claims.service}.done")
            except ExportLeaseLost:
                await work.let_go()
                log.info("export_taken_over", step=row.id)
            except Exception as error:
                log.warning("export_failed", step=row.id, exc_info=error)
                await self._rest(work, type(error).__name__)
        return bool(rows)

    async def _rest(self, work: ExportStep, message: str) -> None:
        try:
            await work.rest(message, seconds=min(2**work.row.tries, LONGEST_PAUSE))
        except ExportLeaseLost:
            await work.let_go()
            log.info("export_taken_over", step=work.row.id)

    async def _collect(self, work: ExportStep) -> None:
        scope = await work.scope()
        for table in self._claims.tables:
            await self._copy_table(work, table, scope)
        # Objects are the projects', and no person's.
        for kept in () if scope.user_id else self._claims.objects:
            await self._copy_objects(work, kept, scope)

    async def _copy_table(self, work: ExportStep, claimed: TableClaim, scope: Scope) -> None:
        where, table = exported_rows(claimed, scope), claimed.table.name
        name = f"{self._claims.service}/tables/{table}.jsonl"
        if where is None or await work.has(name):
            return
        lines = TableLines(self._database, exported_columns(claimed, scope), where)
        stored = await work.write(scope, aiter(lines))
        reach(f"exports.{self._claims.service}.stored")
        await work.record(name, stored, table=table, rows=lines.rows)
        reach(f"exports.{self._claims.service}.recorded")

    async def _copy_objects(self, work: ExportStep, kept: ObjectClaim, scope: Scope) -> None:
        if kept.prefixes is None or kept.unexported:
            return
        found = kept.prefixes(scope).subquery()
        prefix, after = next(iter(found.c)), ""
        while True:
            query = sa.select(prefix).where(prefix > after).order_by(prefix).limit(PREFIXES)
            async with self._database.autocommit() as connection:
                prefixes = (await connection.execute(query)).scalars().all()
            if not prefixes:
                return
            for one in prefixes:
                async for info in self._objects.list(one):
                    await self._copy_object(work, info.key, scope)
            after = prefixes[-1]

    async def _copy_object(self, work: ExportStep, key: str, scope: Scope) -> None:
        name = f"{self._claims.service}/objects/{key}"
        if await work.has(name):
            await work.keep()
            return
        try:
            stored = await work.write(scope, self._objects.get(key), project_id=project_of(key))
        except ObjectNotFound:
            # Removed since it was listed.
            return
        except (SealingKeyUnavailable, ObjectDamaged) as error:
            if isinstance(error, SealingKeyUnavailable) and work.row.tries < TRIES_FOR_KEYS:
                raise
            log.warning("export_leaves_out", key=key, reason=str(error))
            work.left_out += 1
            return
        await work.record(name, stored)
