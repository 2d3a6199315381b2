"""Every query on runs that tenants ask for."""

from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert

from windlass.core.clock import now_seconds
from windlass.core.db import Database
from windlass.core.db.paging import newest_first
from windlass.core.quotas import Quota
from windlass.tuning.domain import unknown_run
from windlass.tuning.storage.bounds import TuningBounds
from windlass.tuning.storage.ends import ending
from windlass.tuning.storage.log import QUEUED, NewOperation, Written, write, write_of_run
from windlass.tuning.storage.sessions import live_session, number_taken
from windlass.tuning.storage.tables import operations, runs

Row = sa.Row[Any]
KNOWN_RUNS = 1024
# Of a queue without a bound.
MOST_COUNTED = 10_000
SETTINGS = (
    "rank", "seed", "train_attention", "train_mlp", "train_unembedding", "optimizer",
)  # fmt: skip


class RunStore:
    """Runs of every project, and what is written into their logs."""

    def __init__(self, database: Database, bounds: TuningBounds):
        self._database = database
        self._bounds = bounds
        # It never changes, and each request of a key for some models asks for it.
        self._base_models: OrderedDict[tuple[str, str], str] = OrderedDict()

    async def create(
        self, project_id: str, values: dict[str, Any], operation: NewOperation
    ) -> Written:
        """Stores a run of a live session with its first operation; a repeat answers the first one.

        Raises NotFound, FailedPrecondition, AlreadyExists for other settings, PermissionDenied and
        ResourceExhausted `quota_exceeded`.
        """
        now, organization_id = now_seconds(), values["organization_id"]
        room = await self._bounds.room(operation)
        async with self._database.begin() as connection:
            await live_session(connection, project_id, values["session_id"])
            await self._bounds.hold(connection, Quota.TUNING_RUNS, organization_id)
            statement = insert(runs).values(created_at=now, last_request_at=now, **values)
            unless_there = statement.on_conflict_do_nothing(index_elements=["id"])
            made = (await connection.execute(unless_there.returning(runs.c.id))).first()
            if made is not None:
                await self._bounds.require_run(connection, values)
            written = await write(connection, operation, room)
            if written.is_new and made is None:
                # A copy has the number: it was never opened, and never will be.
                raise number_taken()
            return written

    async def submit(self, operation: NewOperation) -> Written:
        """Writes an operation into the log of a run of its project.

        Raises NotFound, FailedPrecondition, AlreadyExists `body_differs`, ResourceExhausted.
        """
        room = await self._bounds.room(operation)
        written = await write_of_run(self._database, operation, room)
        if written.is_new:
            self._bounds.admitted(operation)
        return written

    async def sample(self, operation: NewOperation) -> Written:
        """Writes what a sampler of the project is asked; raises as `submit`."""
        room = await self._bounds.room(operation)
        async with self._database.autocommit() as connection:
            written = await write(connection, operation, room)
        if written.is_new:
            self._bounds.admitted(operation)
        return written

    async def cancel(self, project_id: str, operation_id: str, result: bytes) -> bool:
        """Ends what a sampler of the project was asked; returns False unless it still waited."""
        ours = sa.and_(
            operations.c.id == operation_id,
            operations.c.project_id == project_id,
            operations.c.sampler_id != "",
        )
        async with self._database.autocommit() as connection:
            ended = await connection.execute(ending(ours, result, "", now_seconds()))
            return bool(ended.rowcount)

    async def queue(self, organization_id: str, project_id: str) -> tuple[int, int]:
        """The number of operations of the project that wait, and how many may."""
        most = await self._bounds.most_waiting(organization_id, project_id)
        few = (
            sa.select(sa.literal(1))
            .where(operations.c.project_id == project_id, QUEUED)
            .limit(min(most, MOST_COUNTED))
            .subquery()
        )
        async with self._database.autocommit() as connection:
            count = await connection.execute(sa.select(sa.func.count()).select_from(few))
            return count.scalar_one(), most

    async def get(self, project_id: str, run_id: str) -> Row:
        """A run of the project, deleted ones too; raises NotFound."""
        query = runs.select().where(runs.c.id == run_id, runs.c.project_id == project_id)
        async with self._database.autocommit() as connection:
            row = (await connection.execute(query)).first()
        if row is None:
            raise unknown_run(run_id)
        return row

    async def base_model(self, project_id: str, run_id: str) -> str:
        """The base model of a run of the project; raises NotFound."""
        if (known := self._base_models.get((project_id, run_id))) is not None:
            return known
        found = str((await self.get(project_id, run_id)).base_model)
        self._base_models[project_id, run_id] = found
        if len(self._base_models) > KNOWN_RUNS:
            self._base_models.popitem(last=False)
        return found

    async def list(
        self, project_id: str, *, after: str, limit: int, offset: int
    ) -> tuple[Sequence[Row], int]:
        """Runs of the project, the latest first, and how many there are."""
        ours = runs.c.project_id == project_id
        query = newest_first(
            runs.select().where(ours), runs.c.created_at, runs.c.id, after=after, of=ours
        )
        async with self._database.autocommit() as connection:
            rows = (await connection.execute(query.limit(limit).offset(offset))).all()
            count = await connection.execute(sa.select(sa.func.count()).where(ours))
            return rows, count.scalar_one()

    async def mark_deleted(self, project_id: str, run_id: str) -> None:
        """Takes a run away from its tenant; what waits is ended by the sweeper. Raises NotFound."""
        async with self._database.begin() as connection:
            found = await connection.execute(
                runs.update()
                .where(runs.c.id == run_id, runs.c.project_id == project_id)
                .values(state="deleted")
            )
        if not found.rowcount:
            raise unknown_run(run_id)
