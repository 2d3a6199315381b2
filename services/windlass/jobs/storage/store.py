"""Every query on jobs themselves: tenants' reads, and changes under the row's lock."""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.ext.asyncio import AsyncConnection

from windlass.core.config import Settings
from windlass.core.db import Database
from windlass.core.db.wake import Wake
from windlass.core.errors import NotFound
from windlass.core.killpoints import reach
from windlass.core.quotas import Quotas
from windlass.jobs.domain.job import CLOSING_KINDS, Change, EffectKind, Job, JobState
from windlass.jobs.storage.changes import apply
from windlass.jobs.storage.insertion import JobCreator
from windlass.jobs.storage.measuring import observe
from windlass.jobs.storage.rows import label, to_job
from windlass.jobs.storage.tables import jobs, outbox

# Topics of the wake-ups, one per loop: files says `jobs` when it has inspected one.
WAKE_VALIDATING = "jobs"
WAKE_PLACEMENT = "jobs:placement"
WAKE_WORKLOADS = "jobs:workloads"
WAKE_OUTBOX = "jobs:outbox"
WAKE_WEBHOOKS = "jobs:webhooks"

# Made once: building a statement costs as much as running one of these.
_GET = jobs.select().where(
    jobs.c.id == sa.bindparam("job_id"), jobs.c.project_id == sa.bindparam("project")
)
_FIND = jobs.select().where(jobs.c.id == sa.any_(sa.bindparam("job_ids", type_=ARRAY(sa.Text))))
_LOCK = jobs.select().where(jobs.c.id == sa.bindparam("job_id")).with_for_update()
# In one order, or two batches could wait for each other.
_LOCK_ALL = _FIND.order_by(jobs.c.id).with_for_update()


def wake_topic(job_id: str) -> str:
    """The topic that wakes the followers of a job's events and log."""
    return f"job:{job_id}"


@dataclass
class Locked:
    """A job whose row is locked, inside the transaction that may change it."""

    connection: AsyncConnection
    job: Job
    changes: list[Change] = field(default_factory=list)

    async def apply(self, change: Change) -> Job:
        """Stores the job, its events and what it owes."""
        (self.job,) = (await apply(self.connection, [(self.job, change)])).jobs
        self.changes.append(change)
        return self.job


class JobStore:
    """Jobs of every project."""

    def __init__(self, database: Database, wake: Wake, quotas: Quotas | None = None):
        """`quotas` None: those of a new installation."""
        self._database = database
        self._wake = wake
        self._creator = JobCreator(database, quotas or Quotas(Settings().quotas))
        self.close = self._creator.close

    async def create(self, change: Change) -> Job:
        """Stores a new job; a repeat of its request answers the first one."""
        change = replace(change, job=replace(change.job, revision=len(change.events)))
        job = await self._creator.create(change)
        reach("jobs.created")
        self._wake_owner(job)
        return job

    async def require_room(self, job: Job) -> None:
        """Raises ResourceExhausted `quota_exceeded` for a job that would be one too many."""
        await self._creator.require_room(job)

    async def get(self, project_id: str, job_id: str) -> Job:
        """A job of the project; raises NotFound."""
        async with self._database.autocommit() as connection:
            key = {"job_id": job_id, "project": project_id}
            row = (await connection.execute(_GET, key)).first()
        if row is None:
            raise _unknown(job_id)
        return to_job(row)

    async def find(self, job_ids: Sequence[str]) -> dict[str, Job]:
        """Jobs by id, of any project: for what acts on behalf of none."""
        async with self._database.autocommit() as connection:
            rows = await connection.execute(_FIND, {"job_ids": job_ids})
            return {row.id: to_job(row) for row in rows}

    async def list(
        self,
        project_id: str,
        *,
        after: str,
        limit: int,
        metadata: Mapping[str, str],
        states: Sequence[int] = (),
        created_after_ms: int = 0,
    ) -> Sequence[Job]:
        """The project's jobs, newest first, beyond `after`; raises NotFound for a foreign one."""
        query = jobs.select().where(jobs.c.project_id == project_id)
        if metadata:
            wanted = [label(project_id, key, value) for key, value in metadata.items()]
            query = query.where(jobs.c.labels.contains(wanted))
        if states:
            query = query.where(jobs.c.state.in_(states))
        if created_after_ms:
            query = query.where(jobs.c.created_at_ms >= created_after_ms)
        if after:
            cursor = (
                sa.select(jobs.c.sequence)
                .where(jobs.c.id == after, jobs.c.project_id == project_id)
                .scalar_subquery()
            )
            query = query.where(jobs.c.sequence < cursor)
        query = query.order_by(jobs.c.sequence.desc()).limit(limit)
        async with self._database.autocommit() as connection:
            rows = (await connection.execute(query)).all()
        if after and not rows:
            await self.get(project_id, after)
        return [to_job(row) for row in rows]

    async def change(
        self, job_id: str, decide: Callable[[Job], Change], *, project_id: str | None = None
    ) -> Job:
        """Applies a decision under the job's row lock; raises NotFound, and what it raises."""
        async with self.locked(job_id, project_id=project_id) as locked:
            return await locked.apply(decide(locked.job))

    async def change_all(self, job_ids: Sequence[str], decide: Callable[[Job], Change]) -> None:
        """Applies a decision to each of some jobs in one transaction; unknown ones are left out."""
        async with self._database.begin() as connection:
            rows = await connection.execute(_LOCK_ALL, {"job_ids": job_ids})
            known = [to_job(row) for row in rows]
            changes = [(job, decide(job)) for job in known]
            done = await apply(connection, changes)
        reach("jobs.statuses_applied")
        observe(zip(known, done.jobs, strict=True))
        for job, (_, change) in zip(done.jobs, changes, strict=True):
            self.wake(job, [change])

    @asynccontextmanager
    async def locked(self, job_id: str, *, project_id: str | None = None) -> AsyncIterator[Locked]:
        """Begins a transaction that holds the job's row; wakes listeners after the commit."""
        async with self._database.begin() as connection:
            row = (await connection.execute(_LOCK, {"job_id": job_id})).first()
            if row is None or project_id not in (None, row.project_id):
                raise _unknown(job_id)
            locked = Locked(connection, before := to_job(row))
            yield locked
        observe([(before, locked.job)])
        self.wake(locked.job, locked.changes)

    def wake(self, job: Job, changes: Sequence[Change]) -> None:
        """Tells the loops and followers of committed changes."""
        kinds = {effect.kind for change in changes for effect in change.effects}
        if job.ended or any(change.events for change in changes):
            self._wake.touch(wake_topic(job.id))
        if EffectKind.WORKLOAD in kinds:
            self._wake.touch(WAKE_WORKLOADS)
        if kinds - {EffectKind.WORKLOAD}:
            self._wake.touch(WAKE_OUTBOX)
        if changes:
            self._wake_owner(job)
        if job.ended:
            self._wake.touch(WAKE_WEBHOOKS)

    def _wake_owner(self, job: Job) -> None:
        if job.state is JobState.VALIDATING:
            self._wake.touch(WAKE_VALIDATING)
        elif job.state is JobState.QUEUED and not job.cluster_id:
            self._wake.touch(WAKE_PLACEMENT)

    async def uses(self, *, file_id: str, model_version_id: str, limit: int) -> dict[str, str]:
        """Ids of jobs that have not ended and use the file or the model version, and their
        projects.
        """
        used = []
        if file_id:
            named = sa.and_(
                jobs.c.validation_file == file_id,
                jobs.c.validation_file != sa.literal_column("''"),
            )
            used += [jobs.c.training_file == file_id, named]
            used.append(jobs.c.spec.contains({"evaluation": {"file": file_id}}))
        if model_version_id:
            used.append(jobs.c.model_version_id == model_version_id)
            for field in ("companions", "judges"):
                beside = {field: [{"version_id": model_version_id}]}
                used.append(jobs.c.spec.contains(beside))
        found: dict[str, str] = {}
        async with self._database.autocommit() as connection:
            # One query each, so that each has its partial index.
            for condition in used:
                live = jobs.c.state < sa.literal_column(f"{JobState.SUCCEEDED:d}")
                query = sa.select(jobs.c.id, jobs.c.project_id).where(condition, live)
                rows = await connection.execute(query.limit(limit))
                found |= {row.id: row.project_id for row in rows}
        return dict(sorted(found.items())[:limit])

    async def owed(self, connection: AsyncConnection, job_id: str) -> int:
        """The number of registrations the job still owes; read under its lock."""
        query = sa.select(sa.func.count()).where(
            outbox.c.job_id == job_id, outbox.c.kind.in_(CLOSING_KINDS), ~outbox.c.done
        )
        return int((await connection.execute(query)).scalar_one())


def _unknown(job_id: str) -> NotFound:
    return NotFound(f"No such fine-tuning job: {job_id[:64]!r}.", param="job_id")
