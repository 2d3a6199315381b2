"""Inserting new jobs: concurrent callers share one statement, and so one commit."""

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert

from windlass.core.coalescing import Coalescer
from windlass.core.db import Database
from windlass.jobs.domain import Change, Job
from windlass.jobs.rows import (
    EVENT_COLUMNS,
    NEW_COLUMNS,
    event_values,
    new_values,
    recordset,
    to_job,
)
from windlass.jobs.tables import events, jobs


def _statement() -> sa.Select[Any]:
    """One round trip: jobs whose request is new, and their first events."""
    job_rows = recordset("jobs", jobs, NEW_COLUMNS)
    event_rows = recordset("events", events, EVENT_COLUMNS)
    created = (
        insert(jobs)
        .from_select(NEW_COLUMNS, sa.select(*(job_rows.c[name] for name in NEW_COLUMNS)))
        .on_conflict_do_nothing(
            index_elements=["project_id", "request_id"],
            # Of a parameter Postgres could not tell that it is the index's own condition.
            index_where=sa.text("request_id <> ''"),
        )
        .returning(jobs.c.id)
        .cte("created")
    )
    told = (
        insert(events)
        .from_select(
            EVENT_COLUMNS,
            sa.select(*(event_rows.c[name] for name in EVENT_COLUMNS)).join(
                created, created.c.id == event_rows.c.job_id
            ),
        )
        .cte("told")
    )
    return sa.select(created.c.id).add_cte(told)


_INSERT = _statement()


class JobCreator:
    """Inserts jobs, many at a time when many come."""

    def __init__(self, database: Database):
        self._database = database
        self._create = Coalescer("create jobs", self._insert)

    async def create(self, change: Change) -> Job:
        """Stores a new job and its events; a repeated request answers the first job."""
        return await self._create(change)

    async def close(self) -> None:
        """Waits for what is under way."""
        await self._create.close()

    async def _insert(self, changes: Sequence[Change]) -> list[Job]:
        values = {
            "jobs": [new_values(change.job) for change in changes],
            "events": [
                row for change in changes for row in event_values(change.job, 1, change.events)
            ],
        }
        async with self._database.read() as connection:
            created = set((await connection.execute(_INSERT, values)).scalars())
        missed = [change.job for change in changes if change.job.id not in created]
        first = await self._first(missed) if missed else {}
        return [
            change.job
            if change.job.id in created
            else first[change.job.project_id, change.job.request_id]
            for change in changes
        ]

    async def _first(self, repeats: list[Job]) -> dict[tuple[str, str], Job]:
        keys = [(job.project_id, job.request_id) for job in repeats]
        query = jobs.select().where(
            sa.tuple_(jobs.c.project_id, jobs.c.request_id).in_(keys), jobs.c.request_id != ""
        )
        async with self._database.read() as connection:
            rows = [to_job(row) for row in await connection.execute(query)]
        return {(job.project_id, job.request_id): job for job in rows}
