"""The background loops of jobs: validate, place, deliver, look after jobs of silent clusters."""

from collections.abc import Callable

import sqlalchemy as sa

from windlass.core.clock import now_ms
from windlass.core.db import Database
from windlass.core.db.leases import claim, held, released
from windlass.core.errors import InvalidArgument
from windlass.jobs.creation.admission import make_plan
from windlass.jobs.creation.input_files import InputFiles
from windlass.jobs.domain import transitions
from windlass.jobs.domain.job import Change, Job, JobFailure, JobState
from windlass.jobs.effects.liveness import LivenessSweeper
from windlass.jobs.scheduling.capacity import Capacity
from windlass.jobs.scheduling.placement import JobPlacer
from windlass.jobs.storage.rows import to_job
from windlass.jobs.storage.store import JobStore
from windlass.jobs.storage.tables import jobs

LEASE_SECONDS = 30.0
VALIDATE_BATCH = 20


class JobScheduler:
    """One round of each loop per call; any number of processes may run them at once."""

    def __init__(
        self,
        database: Database,
        store: JobStore,
        files: InputFiles,
        capacity: Capacity,
        placement: JobPlacer,
        sweeper: LivenessSweeper,
    ):
        self._database = database
        self._store = store
        self._files = files
        self._capacity = capacity
        self._placement = placement
        self._sweeper = sweeper

    async def place(self) -> bool:
        """Gives queued jobs to clusters."""
        looked = await self._capacity.look()
        snapshot = self._capacity.snapshot
        if snapshot is None:
            return False
        if looked:
            await self._placement.explain(snapshot)
        if not snapshot.clusters:
            return False
        return await self._placement.place(snapshot, self._capacity.load, now_ms())

    async def sweep(self) -> bool:
        """Looks after jobs whose cluster went silent."""
        await self._capacity.look()
        snapshot = self._capacity.snapshot
        live = frozenset(one.id for one in snapshot.clusters) if snapshot else frozenset()
        return await self._sweeper.look(live)

    async def validate(self) -> bool:
        """Queues or fails jobs whose files have been inspected meanwhile."""
        waiting = jobs.c.state == sa.literal_column(f"{JobState.VALIDATING:d}")
        token, rows = await claim(
            self._database, jobs, waiting, limit=VALIDATE_BATCH, seconds=LEASE_SECONDS
        )
        if not rows:
            return False
        progressed = False
        for row in rows:
            decide = await self._judge(to_job(row))
            if decide is not None:
                await self._store.change(row.id, decide)
                progressed = True
        async with self._database.begin() as connection:
            await connection.execute(jobs.update().where(held(jobs, token)).values(**released()))
        return progressed and len(rows) == VALIDATE_BATCH

    async def _judge(self, job: Job) -> Callable[[Job], Change] | None:
        """The change that the files make to the job; None while they are still being inspected."""
        spec = job.spec
        try:
            inputs = await self._files.look(job.project_id, spec)
            plan = make_plan(spec, inputs.examples) if inputs.examples else None
        except InvalidArgument as error:
            failure = JobFailure(code=error.reason, message=error.message, param=error.param or "")
            return lambda job: transitions.unfit(job, failure, now_ms())
        if plan is None:
            return None
        return lambda job: transitions.validated(job, plan, now_ms())
