"""Every query on what runs of tuning have engines compute."""

from typing import Any

import sqlalchemy as sa

from windlass.core.db import Database
from windlass.inference.loads import CLOCK
from windlass.inference.trainings.holds import held_engines
from windlass.inference.trainings.store import IS_DONE, same_request, steps, to_training, trainings
from windlass.inference.trainings.training import SUCCEEDED, EngineTraining

# After its end, by when the log that the run could be taken up from is gone.
KEPT_SECONDS = 8 * 86_400.0
_IS_STEP = trainings.c.output_bytes == 0
_HAS_SUCCEEDED = trainings.c.state == SUCCEEDED


class EngineRunStore:
    """Computations of the runs of every project."""

    def __init__(self, database: Database):
        self._database = database

    async def of_key(self, project_id: str, key: str, digest: bytes) -> EngineTraining | None:
        """Returns the computation of a key, None before it is made.

        Raises AlreadyExists where that is another one.
        """
        found = await self._first(
            trainings.c.project_id == project_id, trainings.c.idempotency_key == key
        )
        return None if found is None else same_request(found, digest)

    async def reread(self, training: EngineTraining) -> EngineTraining:
        """Returns a computation as it is now."""
        return await self._first(trainings.c.id == training.id) or training

    async def before(self, project_id: str, run_id: str) -> str:
        """Returns the computation whose weights a run goes on from; empty for its first.

        That is its newest step, or the first of its passes: later ones move nothing.
        """
        step = await self._of_run(project_id, run_id, _IS_STEP, trainings.c.created_at.desc())
        return step or await self._of_run(project_id, run_id, ~_IS_STEP, trainings.c.created_at)

    async def steps(self, training: EngineTraining) -> int:
        """Returns how many steps the run of a computation has taken."""
        mine = trainings.c.project_id == training.project_id, trainings.c.run_id == training.run_id
        query = sa.select(sa.func.count()).where(*mine, _IS_STEP, _HAS_SUCCEEDED)
        async with self._database.autocommit() as connection:
            return int((await connection.execute(query)).scalar_one())

    async def waits_in_vain(self, training: EngineTraining, seconds: float) -> bool:
        """Returns True for one that no engine has had for so long."""
        late = trainings.c.created_at < CLOCK - seconds
        return await self._database.ask(
            sa.exists().where(trainings.c.id == training.id, trainings.c.engine_id == "", late)
        )

    async def forget_old(self, project_id: str) -> None:
        """Removes what runs of a project computed that nobody can take up again."""
        held = sa.select(held_engines.c.run_id).where(held_engines.c.project_id == project_id)
        old = sa.select(trainings.c.id).where(
            trainings.c.project_id == project_id,
            trainings.c.run_id != "",
            trainings.c.run_id.not_in(held),
            trainings.c.finished_at < CLOCK - KEPT_SECONDS,
            IS_DONE,
        )
        async with self._database.begin() as connection:
            gone = (await connection.execute(old.with_for_update())).scalars().all()
            await connection.execute(steps.delete().where(steps.c.training_id.in_(gone)))
            await connection.execute(trainings.delete().where(trainings.c.id.in_(gone)))

    async def _of_run(
        self,
        project_id: str,
        run_id: str,
        kind: sa.ColumnElement[bool],
        order: sa.ColumnElement[Any],
    ) -> str:
        mine = trainings.c.project_id == project_id, trainings.c.run_id == run_id
        query = sa.select(trainings.c.id).where(*mine, kind, _HAS_SUCCEEDED)
        async with self._database.autocommit() as connection:
            found = await connection.execute(query.order_by(order, trainings.c.id).limit(1))
            return found.scalar() or ""

    async def _first(self, *where: sa.ColumnElement[bool]) -> EngineTraining | None:
        async with self._database.autocommit() as connection:
            row = (await connection.execute(trainings.select().where(*where))).first()
        return None if row is None else to_training(row)
