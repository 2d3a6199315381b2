"""Reading what happened to a job: events and checkpoints, in pages or followed live."""

import re
from collections.abc import AsyncGenerator, Sequence
from typing import Any

import sqlalchemy as sa

from windlass.core.db import Database
from windlass.core.errors import NotFound
from windlass.jobs.domain.job import Checkpoint, Job, JobEvent
from windlass.jobs.storage.event_feeds import EventFeeds
from windlass.jobs.storage.rows import to_event
from windlass.jobs.storage.tables import checkpoints, events


class HistoryStore:
    """Events and checkpoints of jobs; callers have looked the job up in their project."""

    def __init__(self, database: Database, feeds: EventFeeds):
        self._database = database
        self._feeds = feeds

    async def events(self, job: Job, *, after: str, limit: int) -> Sequence[JobEvent]:
        """Newest first, beyond the event `after`; raises NotFound for one of another job."""
        query = events.select().where(events.c.job_id == job.id)
        if after:
            query = query.where(events.c.revision < revision_of(job, after))
        query = query.order_by(events.c.revision.desc()).limit(limit)
        return await self._read(query)

    def follow(self, job: Job, after: str) -> AsyncGenerator[JobEvent]:
        """Oldest first, beyond `after`, then live until the job has ended and all is told."""
        return self._feeds.follow(job, revision_of(job, after) if after else 0)

    async def _read(self, query: sa.Select[Any]) -> Sequence[JobEvent]:
        async with self._database.autocommit() as connection:
            return [to_event(row) for row in await connection.execute(query)]

    async def checkpoints(self, job: Job, *, after: str, limit: int) -> Sequence[Checkpoint]:
        """Latest step first, beyond the checkpoint `after`; raises NotFound for a foreign one."""
        query = checkpoints.select().where(checkpoints.c.job_id == job.id)
        if after:
            cursor = sa.select(checkpoints.c.step).where(
                checkpoints.c.id == after, checkpoints.c.job_id == job.id
            )
            query = query.where(checkpoints.c.step < cursor.scalar_subquery())
        query = query.order_by(checkpoints.c.step.desc()).limit(limit)
        async with self._database.autocommit() as connection:
            rows = (await connection.execute(query)).all()
            if after and not rows:
                known = sa.select(sa.literal(1)).where(
                    checkpoints.c.id == after, checkpoints.c.job_id == job.id
                )
                if (await connection.execute(known)).first() is None:
                    raise NotFound(f"The job has no checkpoint {after[:64]!r}.", param="after")
        return [
            Checkpoint(**{name: getattr(row, name) for name in Checkpoint.__slots__})
            for row in rows
        ]


def revision_of(job: Job, event_id: str) -> int:
    """The place of an event in its job's order; raises NotFound for one of another job."""
    prefix = f"ftevent-{job.id.removeprefix('ftjob-')}-"
    place = event_id.removeprefix(prefix)
    if not event_id.startswith(prefix) or not re.fullmatch(r"[1-9][0-9]{0,17}", place):
        raise NotFound(f"The job has no event {event_id[:64]!r}.", param="after")
    return int(place)
