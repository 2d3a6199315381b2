"""Reading what happened to a job: events and checkpoints, in pages or followed live."""

import re
from collections.abc import AsyncIterator, Sequence
from typing import Any

import sqlalchemy as sa

from windlass.core.db import Database
from windlass.core.errors import NotFound
from windlass.core.wake import Wake
from windlass.jobs.domain import Checkpoint, Event, Job
from windlass.jobs.rows import to_event
from windlass.jobs.store import JobStore, wake_topic
from windlass.jobs.tables import checkpoints, events

FOLLOW_BATCH = 500
FOLLOW_POLL_SECONDS = 2.0


class HistoryStore:
    """Events and checkpoints of jobs; callers have looked the job up in their project."""

    def __init__(self, database: Database, jobs: JobStore, wake: Wake):
        self._database = database
        self._jobs = jobs
        self._wake = wake

    async def events(self, job: Job, *, after: str, limit: int) -> Sequence[Event]:
        """Newest first, beyond the event `after`; raises NotFound for one of another job."""
        query = events.select().where(events.c.job_id == job.id)
        if after:
            query = query.where(events.c.revision < revision_of(job, after))
        query = query.order_by(events.c.revision.desc()).limit(limit)
        return await self._read(query)

    async def follow(self, project_id: str, job: Job, after: str) -> AsyncIterator[Event]:
        """Oldest first, beyond `after`, then live until the job has ended and all is told."""
        position = revision_of(job, after) if after else 0
        listener = self._wake.listen(wake_topic(job.id))
        try:
            while True:
                # The state first: the last event commits together with it.
                ended = job.ended
                query = (
                    events.select()
                    .where(events.c.job_id == job.id, events.c.revision > position)
                    .order_by(events.c.revision)
                    .limit(FOLLOW_BATCH)
                )
                page = await self._read(query)
                for event in page:
                    yield event
                    position = event.revision
                if len(page) == FOLLOW_BATCH:
                    continue
                if ended:
                    return
                await listener.wait(FOLLOW_POLL_SECONDS)
                job = await self._jobs.get(project_id, job.id)
        finally:
            listener.close()

    async def _read(self, query: sa.Select[Any]) -> Sequence[Event]:
        async with self._database.read() as connection:
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
        async with self._database.read() as connection:
            rows = (await connection.execute(query)).all()
            if after and not rows:
                known = sa.select(sa.literal(1)).where(
                    checkpoints.c.id == after, checkpoints.c.job_id == job.id
                )
                if (await connection.execute(known)).first() is None:
                    raise NotFound(f"No checkpoint {after[:64]!r}.", param="after")
        return [
            Checkpoint(**{name: getattr(row, name) for name in Checkpoint.__slots__})
            for row in rows
        ]


def revision_of(job: Job, event_id: str) -> int:
    """The place of an event in its job's order; raises NotFound for one of another job."""
    prefix = f"ftevent-{job.id.removeprefix('ftjob-')}-"
    place = event_id.removeprefix(prefix)
    if not event_id.startswith(prefix) or not re.fullmatch(r"[1-9][0-9]{0,17}", place):
        raise NotFound(f"No event {event_id[:64]!r} of this job.", param="after")
    return int(place)
