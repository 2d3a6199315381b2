"""The order of an erasure: it begins after the grace period, and ends with a signed report."""

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert

from windlass.core import telemetry
from windlass.core.clock import now_seconds
from windlass.core.db import Database
from windlass.core.db.leases import claim, held, no_rows, released
from windlass.core.killpoints import reach
from windlass.core.leaving.tables import DONE, ERASED, ERASING, PENDING, SCHEDULED, erasures, steps
from windlass.users.leaving.report import ReportSigner
from windlass.users.leaving.store import ErasureStore
from windlass.users.tables import organizations, projects

log = telemetry.logger("leaving")
# Those with something to erase; a test compares it with their claims.
SERVICES = (
    "users", "rbac", "files", "models", "jobs", "clusters", "inference", "usage", "federation",
    "tuning",
)  # fmt: skip
ROUNDS = 2
LEASE_SECONDS = 60.0
BATCH = 20


class ErasureConductor:
    """Leased rounds."""

    def __init__(self, database: Database, store: ErasureStore, signer: ReportSigner):
        self._database = database
        self._store = store
        self._signer = signer
        self._open = erasures.c.state.in_(
            [sa.literal_column(f"'{SCHEDULED}'"), sa.literal_column(f"'{ERASING}'")]
        )
        self.has_none = no_rows(database, self._open)

    async def once(self) -> bool:
        """Begins, repeats or ends what is due; returns True if something was."""
        is_held = sa.exists().where(
            organizations.c.id == erasures.c.organization_id, organizations.c.held_at > 0
        )
        waits = sa.exists().where(steps.c.erasure_id == erasures.c.id, steps.c.state == PENDING)
        due = sa.or_(
            sa.and_(erasures.c.state == SCHEDULED, erasures.c.erase_at <= now_seconds(), ~is_held),
            sa.and_(erasures.c.state == ERASING, ~waits),
        )
        token, rows = await claim(
            self._database, erasures, sa.and_(self._open, due), limit=BATCH, seconds=LEASE_SECONDS
        )
        for row in rows:
            if row.state == SCHEDULED:
                await self._begin(row.id, row.organization_id, token)
            elif row.round < ROUNDS:
                await self._repeat(row.id, token)
            else:
                await self._end(row.id, token)
        return bool(rows)

    async def _begin(self, erasure_id: str, organization_id: str, token: str) -> None:
        mine = sa.and_(erasures.c.id == erasure_id, held(erasures, token))
        lock = sa.select(organizations.c.held_at).where(organizations.c.id == organization_id)
        begun = {"state": ERASING, "round": 1, "started_at": now_seconds()}
        async with self._database.begin() as connection:
            # A hold or an undo that came between has the row first, and wins.
            if await connection.scalar(lock.with_for_update()):
                begun = {}
            done = await connection.execute(
                erasures.update()
                .where(mine, erasures.c.state == SCHEDULED)
                .values(begun | released())
            )
            if begun and done.rowcount:
                made = [
                    {"id": f"{erasure_id}/{name}", "erasure_id": erasure_id, "service": name}
                    for name in SERVICES
                ]
                await connection.execute(insert(steps).values(made).on_conflict_do_nothing())
        reach("erasures.begun")
        log.info("erasure_begun", erasure=erasure_id)

    async def _repeat(self, erasure_id: str, token: str) -> None:
        mine = sa.and_(erasures.c.id == erasure_id, held(erasures, token))
        async with self._database.begin() as connection:
            done = await connection.execute(
                erasures.update().where(mine).values(round=erasures.c.round + 1, **released())
            )
            if done.rowcount:
                await connection.execute(
                    steps.update()
                    .where(steps.c.erasure_id == erasure_id, steps.c.state == DONE)
                    .values(state=PENDING, not_before=0)
                )
        reach("erasures.repeated")

    async def _end(self, erasure_id: str, token: str) -> None:
        erasure = await self._store.get(None, erasure_id)
        finished_at = now_seconds()
        report = self._signer.sign(erasure, finished_at=finished_at)
        async with self._database.begin() as connection:
            done = await connection.execute(
                erasures.update()
                .where(erasures.c.id == erasure_id, held(erasures, token))
                .values(state=ERASED, finished_at=finished_at, report=report, **released())
            )
            if done.rowcount:
                # Nothing of theirs is left that could be anywhere.
                theirs = sa.select(sa.func.unnest(erasures.c.project_ids))
                await connection.execute(
                    projects.update()
                    .where(projects.c.id.in_(theirs.where(erasures.c.id == erasure_id)))
                    .values(geography="")
                )
        reach("erasures.reported")
        log.info("erasure_finished", erasure=erasure_id)
