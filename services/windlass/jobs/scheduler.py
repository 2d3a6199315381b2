"""The background loops of jobs: validate, place, deliver, patrol."""

import time
from collections.abc import Callable

import sqlalchemy as sa

from windlass.api.clusters.v1 import clusters_pb2, clusters_pb2_grpc
from windlass.core.db import Database
from windlass.core.errors import InvalidArgument
from windlass.core.leases import claim, held, released
from windlass.jobs import transitions
from windlass.jobs.domain import Change, Failure, Job, State
from windlass.jobs.intake import Intake, make_plan
from windlass.jobs.placement import Candidate, Placement
from windlass.jobs.rows import to_job
from windlass.jobs.service import now_ms
from windlass.jobs.statuses import Patrol
from windlass.jobs.store import JobStore
from windlass.jobs.tables import jobs

LEASE_SECONDS = 30.0
VALIDATE_BATCH = 20
CAPACITY_SECONDS = 1.0
# With none, somebody may wait for the first; but not each new job is worth a look.
NONE_SECONDS = 0.1


class Capacity:
    """What clusters have and carry, at most a second old: placing must not wait for it."""

    def __init__(
        self,
        clusters: clusters_pb2_grpc.ClustersInternalServiceAsyncStub,
        placement: Placement,
    ):
        self._clusters = clusters
        self._placement = placement
        self._until = 0.0
        self.candidates: list[Candidate] = []
        # Ours, counted on by placement until the next look.
        self.load: dict[str, int] = {}

    async def look(self) -> bool:
        """Looks again if the last look is too old; whether it did."""
        if time.monotonic() < self._until:
            return False
        answer = await self._clusters.ListCapacity(clusters_pb2.ListCapacityRequest())
        self.load = await self._placement.load()
        self.candidates = [
            Candidate(
                id=cluster.id,
                slots=cluster.capacity.slots,
                gpus=cluster.capacity.gpus,
                backends=frozenset(cluster.capacity.backends),
            )
            for cluster in answer.clusters
            if cluster.live
        ]
        self._until = time.monotonic() + (CAPACITY_SECONDS if self.candidates else NONE_SECONDS)
        return True


class Scheduler:
    """One round of each loop per call; any number of processes may run them at once."""

    def __init__(
        self,
        database: Database,
        store: JobStore,
        intake: Intake,
        capacity: Capacity,
        placement: Placement,
        patrol: Patrol,
    ):
        self._database = database
        self._store = store
        self._intake = intake
        self._capacity = capacity
        self._placement = placement
        self._patrol = patrol

    async def place(self) -> bool:
        """Gives queued jobs to clusters."""
        if await self._capacity.look():
            await self._placement.explain(self._capacity.candidates)
        known = self._capacity
        if not known.candidates:
            return False
        return await self._placement.place(known.candidates, known.load, now_ms())

    async def patrol(self) -> bool:
        """Looks after jobs whose cluster went silent."""
        await self._capacity.look()
        return await self._patrol.look(frozenset(one.id for one in self._capacity.candidates))

    async def validate(self) -> bool:
        """Queues or fails jobs whose files have been inspected meanwhile."""
        waiting = jobs.c.state == sa.literal_column(f"{State.VALIDATING:d}")
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
        """What the files make of the job, None while they are still being inspected."""
        spec = job.spec
        try:
            inputs = await self._intake.inputs(
                job.project_id,
                training=spec.training_file,
                validation=spec.validation_file,
                method=spec.method,
            )
            plan = make_plan(spec, inputs.examples) if inputs.examples else None
        except InvalidArgument as error:
            failure = Failure(code=error.reason, message=error.message, param=error.param or "")
            return lambda job: transitions.unfit(job, failure, now_ms())
        if plan is None:
            return None
        return lambda job: transitions.validated(job, plan, now_ms())
