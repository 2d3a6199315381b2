"""Inserting new jobs: concurrent callers share one statement, and so one commit."""

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from windlass.core.db import Database
from windlass.core.db.coalescing import Coalescer
from windlass.core.errors import AppError, ResourceExhausted
from windlass.core.quotas import Quota, Quotas
from windlass.jobs.domain.job import Change, Job, JobState
from windlass.jobs.storage.rows import (
    EVENT_COLUMNS,
    NEW_COLUMNS,
    event_values,
    new_values,
    recordset,
    to_job,
)
from windlass.jobs.storage.tables import events, jobs


def _statement() -> sa.Select[Any]:
    """Inserts jobs whose request is new, and their first events, in one round trip."""
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
# A literal, since a plan with a parameter could not use the partial index.
_LIVE = sa.select(
    sa.func.count().label("total"),
    sa.func.count().filter(jobs.c.project_id == sa.bindparam("p")).label("own"),
).where(
    jobs.c.organization_id == sa.bindparam("o"),
    jobs.c.state < sa.literal_column(f"{JobState.SUCCEEDED:d}"),
)


class JobCreator:
    """Inserts jobs, many at a time when many come."""

    def __init__(self, database: Database, quotas: Quotas):
        self._database = database
        self._quotas = quotas
        self._create: Coalescer[Change, Job | AppError] = Coalescer(
            # Two of one organization would wait for each other: they count its jobs.
            "create jobs",
            self._insert,
            abreast=1,
        )

    async def create(self, change: Change) -> Job:
        """Stores a new job and its events; a repeated request answers the first job.

        Raises ResourceExhausted `quota_exceeded`.
        """
        made = await self._create(change)
        if isinstance(made, AppError):
            raise made
        return made

    async def require_room(self, job: Job) -> None:
        """Raises ResourceExhausted for a job that would exceed a quota now; holds no lock."""
        organization, project = job.organization_id, job.project_id
        async with self._database.autocommit() as connection:
            may = await self._quotas.of(connection, Quota.JOBS, organization, project)
            counted = await connection.execute(_LIVE, {"o": organization, "p": project})
            live = counted.one()
        may.require(organization=live.total + 1, project=live.own + 1)

    async def close(self) -> None:
        """Waits for insertions in progress."""
        await self._create.close()

    async def _insert(self, changes: Sequence[Change]) -> list[Job | AppError]:
        async with self._database.begin() as connection:
            refused = await self._refused(connection, [change.job for change in changes])
            wanted = [change for change in changes if change.job.id not in refused]
            values = {
                "jobs": [new_values(change.job) for change in wanted],
                "events": [
                    row for change in wanted for row in event_values(change.job, 1, change.events)
                ],
            }
            created = set((await connection.execute(_INSERT, values)).scalars())
        missed = [change.job for change in changes if change.job.id not in created]
        first = await self._first(missed) if missed else {}

        def answer(job: Job) -> Job | AppError:
            if job.id in created:
                return job
            # A repeat is no job more, and is not refused.
            found = first.get((job.project_id, job.request_id))
            return found if found is not None else refused[job.id]

        return [answer(change.job) for change in changes]

    async def _refused(
        self, connection: AsyncConnection, wanted: Sequence[Job]
    ) -> dict[str, AppError]:
        """The jobs that would exceed a quota, with the error; locks the counted rows."""
        refused: dict[str, AppError] = {}
        by_project: dict[tuple[str, str], list[Job]] = defaultdict(list)
        for job in wanted:
            by_project[job.organization_id, job.project_id].append(job)
        everyone: dict[str, int] = {}
        # In one order for all, so that no two batches wait for each other.
        for (organization, project), jobs_ in sorted(by_project.items()):
            may = await self._quotas.hold(connection, Quota.JOBS, organization, project)
            live = (await connection.execute(_LIVE, {"o": organization, "p": project})).one()
            own = live.own
            for job in jobs_:
                total = everyone.get(organization, live.total)
                try:
                    may.require(organization=total + 1, project=own + 1)
                except ResourceExhausted as error:
                    refused[job.id] = error
                    continue
                own, everyone[organization] = own + 1, total + 1
        return refused

    async def _first(self, repeats: list[Job]) -> dict[tuple[str, str], Job]:
        keys = [(job.project_id, job.request_id) for job in repeats]
        query = jobs.select().where(
            sa.tuple_(jobs.c.project_id, jobs.c.request_id).in_(keys), jobs.c.request_id != ""
        )
        async with self._database.autocommit() as connection:
            rows = [to_job(row) for row in await connection.execute(query)]
        return {(job.project_id, job.request_id): job for job in rows}
