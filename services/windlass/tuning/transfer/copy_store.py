"""Every query on copies of checkpoints."""

from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert

from windlass.core.clock import now_seconds
from windlass.core.db import Database
from windlass.core.errors import ResourceExhausted
from windlass.tuning.domain import unknown_checkpoint
from windlass.tuning.storage.bounds import TuningBounds
from windlass.tuning.storage.execution import ready
from windlass.tuning.storage.outcomes import WrittenCheckpoint
from windlass.tuning.storage.sessions import live_session, number_taken
from windlass.tuning.storage.tables import checkpoints, runs

Row = sa.Row[Any]
# Of a project.
MAX_COPIES = 1000


class CopyStore:
    """Copies of every project: each in a run of its own, which is not trained."""

    def __init__(self, database: Database, bounds: TuningBounds):
        self._database = database
        self._bounds = bounds

    async def begin(self, run: dict[str, Any], checkpoint: dict[str, Any]) -> Row:
        """Stores a copy that is about to be made; a repeat answers the first one's checkpoint.

        Raises NotFound, FailedPrecondition, AlreadyExists `body_differs`, ResourceExhausted, and
        PermissionDenied `quota_exceeded`.
        """
        project_id, now = run["project_id"], now_seconds()
        async with self._database.begin() as connection:
            if run["session_id"]:
                await live_session(connection, project_id, run["session_id"])
            ours = sa.and_(runs.c.project_id == project_id, runs.c.state == "copied")
            others = sa.select(sa.func.count()).where(ours, runs.c.id != run["id"])
            if (await connection.execute(others)).scalar_one() >= MAX_COPIES:
                raise ResourceExhausted(
                    f"The project has {MAX_COPIES} copies; delete some.", reason="too_many_copies"
                )
            made = insert(runs).values(state="copied", created_at=now, last_request_at=now, **run)
            await connection.execute(made.on_conflict_do_nothing(index_elements=["id"]))
            query = runs.select().where(runs.c.id == run["id"], ours)
            there = (await connection.execute(query)).first()
            if there is None or there.user_metadata != run["user_metadata"]:
                raise number_taken()
            chosen = checkpoints.select().where(checkpoints.c.id == checkpoint["id"])
            if (await connection.execute(chosen)).first() is None:
                await self._bounds.require_checkpoint(connection, checkpoint)
            written = insert(checkpoints).values(state="writing", created_at=now, **checkpoint)
            await connection.execute(written.on_conflict_do_nothing(index_elements=["id"]))
            row = (await connection.execute(chosen)).one()
        if row.state == "deleting":
            raise unknown_checkpoint(row.name)
        return row

    async def finish(self, written: WrittenCheckpoint) -> None:
        """Makes a copy readable, unless it was deleted meanwhile."""
        async with self._database.begin() as connection:
            statement = ready(written).where(checkpoints.c.state == "writing")
            await connection.execute(statement)
