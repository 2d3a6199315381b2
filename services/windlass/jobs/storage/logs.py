"""The job's log: chunks in the object store, their places in a table."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from windlass.core.db import Database
from windlass.core.db.paging import STREAM_PAGE_BYTES
from windlass.core.db.wake import Wake
from windlass.core.ids import new_id
from windlass.core.objects import ObjectNotFound, ObjectStore
from windlass.jobs.domain.job import Job
from windlass.jobs.storage.store import JobStore, wake_topic
from windlass.jobs.storage.tables import jobs, logs

# Of one attempt; what comes beyond is dropped, and the log says so.
MAX_ATTEMPT_BYTES = 32 * 2**20
_CUT = b"\n[the log of this attempt goes on, but is not kept]\n"
READ_BATCH = 100
FOLLOW_POLL_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class Chunk:
    """A part of a job's log at its place in the whole."""

    position: int
    data: bytes


class LogStore:
    """Logs of jobs."""

    def __init__(self, database: Database, objects: ObjectStore, jobs: JobStore, wake: Wake):
        self._database = database
        self._objects = objects
        self._jobs = jobs
        self._wake = wake

    async def append(self, job: Job, *, offset: int, data: bytes) -> int:
        """Stores a chunk of the attempt's log; returns how much of it is stored.

        Idempotent by offset: what is stored already is skipped, and a chunk
        beyond a gap is not taken, so that the agent sends from the answer on.
        """
        stored = await self._stored(job)
        if stored >= MAX_ATTEMPT_BYTES:
            return max(stored, offset + len(data))
        if offset > stored or offset + len(data) <= stored:
            return stored
        fresh = data[stored - offset :]
        kept = fresh[: MAX_ATTEMPT_BYTES - stored]
        content = kept if len(kept) == len(fresh) else kept + _CUT
        # Its own name, so that a repeat that is still on its way overwrites nothing.
        name = f"{stored:012d}-{new_id('', length=8)}"
        key = f"logs/{job.project_id}/{job.id}/{job.attempt}/{name}"
        await self._objects.put(key, _once(content))
        if not await self._note(job, offset=stored, size=len(content), key=key):
            await self._objects.delete(key)
            return await self._stored(job)
        self._wake.touch(wake_topic(job.id))
        return stored + len(fresh)

    async def _stored(self, job: Job) -> int:
        async with self._database.autocommit() as connection:
            return await self._end(connection, job)

    async def _end(self, connection: AsyncConnection, job: Job) -> int:
        end = sa.func.coalesce(sa.func.max(logs.c.offset + logs.c.bytes), 0)
        query = sa.select(end).where(logs.c.job_id == job.id, logs.c.attempt == job.attempt)
        return int((await connection.execute(query)).scalar_one())

    async def _note(self, job: Job, *, offset: int, size: int, key: str) -> bool:
        """Places a chunk behind all others; False when another took its place."""
        async with self._database.begin() as connection:
            lock = sa.select(jobs.c.id).where(jobs.c.id == job.id).with_for_update()
            await connection.execute(lock)
            if await self._end(connection, job) != offset:
                return False
            last = sa.func.coalesce(sa.func.max(logs.c.position + logs.c.bytes), 0)
            position = sa.select(last).where(logs.c.job_id == job.id).scalar_subquery()
            await connection.execute(
                logs.insert().values(
                    job_id=job.id,
                    position=position,
                    attempt=job.attempt,
                    offset=offset,
                    bytes=size,
                    object_key=key,
                )
            )
        return True

    async def read(
        self, project_id: str, job: Job, *, offset: int, follow: bool
    ) -> AsyncIterator[Chunk]:
        """The log of all attempts from `offset`, live until the job has ended if `follow`."""
        listener = self._wake.listen(wake_topic(job.id))
        position, last_look = max(0, offset), False
        try:
            while True:
                rows = await self._rows(job.id, position)
                for row in rows:
                    async for chunk in self._chunks(row, position):
                        yield chunk
                        position = chunk.position + len(chunk.data)
                    position = max(position, row.position + row.bytes)
                if rows:
                    continue
                if not follow or last_look:
                    return
                await listener.wait(FOLLOW_POLL_SECONDS)
                # The agent sends the rest of the log after the job has ended: look once more.
                last_look = job.ended
                job = await self._jobs.get(project_id, job.id)
        finally:
            listener.close()

    async def _rows(self, job_id: str, position: int) -> list[Any]:
        query = (
            logs.select()
            .where(logs.c.job_id == job_id, logs.c.position + logs.c.bytes > position)
            .order_by(logs.c.position)
            .limit(READ_BATCH)
        )
        async with self._database.autocommit() as connection:
            return list(await connection.execute(query))

    async def _chunks(self, row: Any, position: int) -> AsyncIterator[Chunk]:
        start = max(0, position - row.position)
        try:
            async for read in self._objects.get(row.object_key, start=start):
                for first in range(0, len(read), STREAM_PAGE_BYTES):
                    data = read[first : first + STREAM_PAGE_BYTES]
                    yield Chunk(row.position + start, data)
                    start += len(data)
        except ObjectNotFound:
            # Gone by the operator's own hand; the rest of the log is still worth reading.
            return


async def _once(data: bytes) -> AsyncIterator[bytes]:
    yield data
