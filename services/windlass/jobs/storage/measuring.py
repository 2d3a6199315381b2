"""Metrics of jobs and of what is owed on their behalf, for operators."""

from collections.abc import Iterable

import sqlalchemy as sa

from windlass.core.clock import now_ms
from windlass.core.db import Database
from windlass.jobs.domain.job import TERMINAL, Job, JobState
from windlass.jobs.storage.due_deliveries import due_deliveries
from windlass.jobs.storage.tables import jobs, outbox
from windlass.metrics import jobs as metrics
from windlass.metrics.outbox import AGE_SECONDS

# Literals, since a plan with parameters could not use the partial indexes.
BY_STATE = (
    sa.select(jobs.c.state, sa.func.count().label("many"), sa.func.min(jobs.c.created_at_ms))
    .where(jobs.c.state < sa.literal_column(f"{min(TERMINAL):d}"))
    .group_by(jobs.c.state)
)
OLDEST_OWED = (
    sa.select(sa.extract("epoch", sa.func.clock_timestamp() - outbox.c.created_at))
    .where(sa.literal_column("NOT done"))
    .order_by(outbox.c.id)
    .limit(1)
)


class JobCounts:
    """Counts of the jobs that have not ended, and the age of what is owed."""

    def __init__(self, database: Database):
        self._database = database

    async def take(self) -> None:
        """Reads both anew."""
        async with self._database.autocommit() as connection:
            found = {row[0]: row for row in await connection.execute(BY_STATE)}
            owed = (await connection.execute(OLDEST_OWED)).scalar_one_or_none()
            due = due_deliveries(1).subquery()
            first_due = sa.select(sa.func.min(due.c.not_before_ms))
            due_at_ms = (await connection.execute(first_due)).scalar_one()
        for state in set(JobState) - TERMINAL:
            many = found[state].many if state in found else 0
            metrics.JOBS.labels(state.name.lower()).set(many)
        queued = found.get(JobState.QUEUED)
        age_ms = now_ms() - queued[2] if queued else 0
        metrics.OLDEST_QUEUED_SECONDS.set(max(0, age_ms) / 1000)
        AGE_SECONDS.labels("jobs").set(max(0.0, float(owed or 0)))
        due_ms = now_ms() - due_at_ms if due_at_ms is not None else 0
        AGE_SECONDS.labels("webhooks").set(max(0, due_ms) / 1000)


def observe(changed: Iterable[tuple[Job, Job]]) -> None:
    """Counts starts and ends among committed changes, each the job before and after."""
    for before, after in changed:
        if after.started_at_ms and not before.started_at_ms:
            waited_ms = after.started_at_ms - after.created_at_ms
            metrics.QUEUE_SECONDS.observe(max(0, waited_ms) / 1000)
        if after.ended and not before.ended:
            metrics.ENDED.labels(after.state.name.lower()).inc()
