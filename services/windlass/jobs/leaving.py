"""Claims of the tables and objects of jobs, and the end of jobs whose project leaves."""

from functools import partial

import sqlalchemy as sa

from windlass.core.clock import now_ms
from windlass.core.db import Database
from windlass.core.leaving.claims import (
    LeavingClaims,
    ObjectClaim,
    Scope,
    by_project,
    erased,
    erased_with,
    nobodys,
)
from windlass.core.leaving.tables import leaves
from windlass.jobs.domain import transitions
from windlass.jobs.domain.job import TERMINAL, JobState
from windlass.jobs.storage.store import JobStore
from windlass.jobs.storage.tables import (
    artifacts,
    checkpoints,
    decisions,
    deliveries,
    events,
    jobs,
    logs,
    outbox,
    webhooks,
)
from windlass.jobs.transport.stream_quota import holders, streams

BATCH = 100
_ALIVE = jobs.c.state < sa.literal_column(f"{min(TERMINAL):d}")


def _logs(scope: Scope) -> sa.Select[tuple[str]]:
    """Prefixes of projects, and of jobs: a release before wrote there."""
    before = sa.select(("logs/" + jobs.c.id + "/").label("prefix")).where(
        scope.has_project(jobs.c.project_id)
    )
    every = sa.union(before, by_project("logs")(scope)).subquery()
    return sa.select(every.c.prefix)


CLAIMS = LeavingClaims(
    "jobs",
    (
        *(
            erased_with(table.c.job_id, jobs)
            for table in (events, checkpoints, artifacts, logs, outbox, decisions)
        ),
        erased(deliveries),
        erased(webhooks),
        erased(streams),
        nobodys(holders, "processes that hold streams"),
        erased(jobs),
    ),
    (ObjectClaim("artifacts", by_project("artifacts")), ObjectClaim("logs", _logs)),
)


class LeavingJobs:
    """Cancels the jobs of projects that leave, and tells when they have ended."""

    def __init__(self, database: Database, store: JobStore, *, grace_ms: int):
        self._database = database
        self._store = store
        self._grace_ms = grace_ms

    async def once(self) -> bool:
        """Cancels a batch; returns True if there may be more."""
        wanted = sa.and_(_ALIVE, jobs.c.state != JobState.CANCELLING, leaves(jobs.c.project_id))
        query = sa.select(jobs.c.id).where(wanted).limit(BATCH)
        async with self._database.autocommit() as connection:
            found = (await connection.execute(query)).scalars().all()
        cancel = partial(transitions.cancelled_if_alive, now=now_ms(), grace_ms=self._grace_ms)
        if found:
            await self._store.change_all(found, cancel)
        return len(found) == BATCH

    async def ended(self, scope: Scope) -> str:
        """Returns what the erasure waits for."""
        own = scope.has_project(jobs.c.project_id)
        owed = sa.and_(outbox.c.job_id.in_(sa.select(jobs.c.id).where(own)), ~outbox.c.done)
        query = sa.select(sa.exists().where(own, _ALIVE), sa.exists().where(owed))
        async with self._database.autocommit() as connection:
            alive, unsettled = (await connection.execute(query)).one()
        return "jobs, which are ending" if alive or unsettled else ""
