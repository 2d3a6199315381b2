"""Every query on losses that sessions have made."""

from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert

from windlass.core.clock import now_seconds
from windlass.core.db import Database
from windlass.core.errors import ResourceExhausted
from windlass.tuning.storage.bounds import TuningBounds
from windlass.tuning.storage.log import NewOperation, Written, write
from windlass.tuning.storage.sessions import live_session
from windlass.tuning.storage.tables import losses, operations

# Of a project whose sessions have not ended.
MAX_LOSSES = 1000


class LossStore:
    """Losses of every project; they go with their sessions."""

    def __init__(self, database: Database, bounds: TuningBounds):
        self._database = database
        self._bounds = bounds

    async def create(
        self, values: dict[str, Any], operation: NewOperation, result: bytes
    ) -> Written:
        """Stores a loss of a live session with an operation that names it; a repeat answers the
        first one.

        Raises NotFound, FailedPrecondition, AlreadyExists for another loss, ResourceExhausted.
        """
        now, room = now_seconds(), await self._bounds.room(operation)
        async with self._database.begin() as connection:
            await live_session(connection, values["project_id"], values["session_id"])
            written = await write(connection, operation, room)
            if not written.is_new:
                return written
            ours = losses.c.project_id == values["project_id"]
            count = sa.select(sa.func.count()).where(ours)
            if (await connection.execute(count)).scalar_one() >= MAX_LOSSES:
                raise ResourceExhausted(
                    f"The project's sessions have {MAX_LOSSES} losses.", reason="too_many_losses"
                )
            await connection.execute(insert(losses).values(created_at=now, **values))
            await connection.execute(
                operations.update()
                .where(operations.c.id == operation.id)
                .values(state="done", result=result, finished_at=now)
            )
        return written

    async def document(self, project_id: str, session_id: str, loss_id: str) -> str | None:
        """A loss of a session of the project; None when there is none."""
        query = sa.select(losses.c.document).where(
            losses.c.id == loss_id,
            losses.c.project_id == project_id,
            losses.c.session_id == session_id,
        )
        async with self._database.autocommit() as connection:
            return (await connection.execute(query)).scalar_one_or_none()
