"""Quota of running jobs of a project."""

from collections import Counter
from collections.abc import Mapping, Sequence

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from windlass.core.errors import ResourceExhausted
from windlass.core.quotas import Quota, QuotaBounds, Quotas
from windlass.jobs.domain.job import Job, JobState
from windlass.jobs.storage.tables import jobs


class Shares:
    """The running jobs of the projects of a batch, counted on as it is placed."""

    def __init__(self, bounds: Mapping[str, QuotaBounds], running: Counter[str]):
        """`running` has the numbers of organizations and of projects, by id."""
        self._bounds = bounds
        self._running = running

    def full(self, job: Job) -> str:
        """Returns why the job has to wait; empty when it need not."""
        try:
            self._bounds[job.project_id].require(
                organization=self._running[job.organization_id] + 1,
                project=self._running[job.project_id] + 1,
            )
        except ResourceExhausted as error:
            return error.message
        return ""

    def add(self, job: Job) -> None:
        """Counts a job that was placed."""
        self._running[job.organization_id] += 1
        self._running[job.project_id] += 1


async def running(
    connection: AsyncConnection, quotas: Quotas, batch: Sequence[Job], *, held: bool = True
) -> Shares:
    """The shares of a batch; if `held`, no other transaction changes them before this one ends."""
    bounds_of = quotas.hold if held else quotas.of
    scopes = sorted({(job.organization_id, job.project_id) for job in batch})
    bounds = {
        project: await bounds_of(connection, Quota.RUNNING_JOBS, organization, project)
        for organization, project in scopes
    }
    counts: Counter[str] = Counter()
    rows = await connection.execute(_RUNNING, {"organizations": sorted({one for one, _ in scopes})})
    for row in rows:
        counts[row.organization_id] += row.number
        counts[row.project_id] += row.number
    return Shares(bounds, counts)


# Literals, since a plan with parameters could not use the partial index.
_RUNNING = (
    sa.select(jobs.c.organization_id, jobs.c.project_id, sa.func.count().label("number"))
    .where(
        jobs.c.organization_id.in_(sa.bindparam("organizations", expanding=True)),
        jobs.c.state < sa.literal_column(f"{JobState.SUCCEEDED:d}"),
        jobs.c.cluster_id != sa.literal_column("''"),
    )
    .group_by(jobs.c.organization_id, jobs.c.project_id)
)
