"""Live events: one reader of each followed job, however many follow it.

A follower that came late, or fell behind the events that are kept here, reads what it lacks
from the table and then joins the others: a client that only waits costs no query.
"""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Sequence

import sqlalchemy as sa

from windlass.core.db import Database
from windlass.core.db.wake import Wake
from windlass.jobs.domain.job import TERMINAL, Job, JobEvent
from windlass.jobs.storage.rows import to_event
from windlass.jobs.storage.store import wake_topic
from windlass.jobs.storage.tables import events, jobs

BATCH = 500
# Events of a job that are kept for those who follow it.
WINDOW = 200
POLL_SECONDS = 2.0

_STANDING = sa.select(jobs.c.state, jobs.c.revision).where(jobs.c.id == sa.bindparam("job_id"))
_BEYOND = (
    events.select()
    .where(events.c.job_id == sa.bindparam("job_id"), events.c.revision > sa.bindparam("position"))
    .order_by(events.c.revision)
    .limit(BATCH)
)


class EventFeeds:
    """The followed jobs of this process; callers have looked the job up in their project."""

    def __init__(self, database: Database, wake: Wake):
        self._database = database
        self._wake = wake
        self._feeds: dict[str, JobEventFeed] = {}

    @property
    def followed(self) -> frozenset[str]:
        """Ids of the jobs that somebody follows."""
        return frozenset(self._feeds)

    async def follow(self, job: Job, position: int) -> AsyncGenerator[JobEvent]:
        """Events beyond `position`, oldest first, until the job has ended and all is told.

        Close the iterator: it is what says that this follower has left.
        """
        feed = self._join(job)
        try:
            while True:
                changed, ended = feed.changed, feed.ended
                page = feed.beyond(position)
                if page is None:
                    page = await self._read(job.id, position)
                for event in page:
                    yield event
                    position = event.revision
                if page:
                    continue
                if ended:
                    return
                if feed.failure:
                    raise feed.failure
                await changed.wait()
        finally:
            self._leave(feed)

    def _join(self, job: Job) -> "JobEventFeed":
        feed = self._feeds.get(job.id)
        if feed is None or feed.failure:
            feed = self._feeds[job.id] = JobEventFeed(job, self._database, self._wake)
        feed.followers += 1
        return feed

    def _leave(self, feed: "JobEventFeed") -> None:
        feed.followers -= 1
        if feed.followers:
            return
        feed.close()
        if self._feeds.get(feed.job_id) is feed:
            del self._feeds[feed.job_id]

    async def _read(self, job_id: str, position: int) -> Sequence[JobEvent]:
        key = {"job_id": job_id, "position": position}
        async with self._database.autocommit() as connection:
            return [to_event(row) for row in await connection.execute(_BEYOND, key)]


class JobEventFeed:
    """The latest events of one job, read as they come.

    `changed` is set once, with the next news, and replaced; `failure` ends the feed.
    """

    def __init__(self, job: Job, database: Database, wake: Wake):
        self.job_id = job.id
        self.ended = job.ended
        self.failure: Exception | None = None
        self.followers = 0
        self.changed = asyncio.Event()
        self._position = job.revision
        self._window: deque[JobEvent] = deque(maxlen=WINDOW)
        self._database = database
        self._wake = wake
        self._task = None if self.ended else asyncio.create_task(self._run(), name="jobs feed")

    def beyond(self, position: int) -> Sequence[JobEvent] | None:
        """The events after `position` that are known here; None if some are not kept."""
        floor = self._window[0].revision - 1 if self._window else self._position
        if position < floor:
            return None
        return [event for event in self._window if event.revision > position]

    def close(self) -> None:
        """Stops reading."""
        if self._task:
            self._task.cancel()

    async def _run(self) -> None:
        listener = self._wake.listen(wake_topic(self.job_id))
        try:
            while not self.ended:
                await listener.wait(POLL_SECONDS)
                await self._look()
        except Exception as error:
            self.failure = error
            self._announce()
        finally:
            listener.close()

    async def _look(self) -> None:
        async with self._database.autocommit() as connection:
            # The state first: the last event commits together with it.
            key = {"job_id": self.job_id}
            state, revision = (await connection.execute(_STANDING, key)).one()
            read = self._position
            while read < revision:
                rows = await connection.execute(_BEYOND, key | {"position": read})
                fresh = [to_event(row) for row in rows]
                self._window.extend(fresh)
                read = fresh[-1].revision
        ended = state in TERMINAL
        if read > self._position or ended:
            self._position, self.ended = read, ended
            self._announce()

    def _announce(self) -> None:
        changed, self.changed = self.changed, asyncio.Event()
        changed.set()
