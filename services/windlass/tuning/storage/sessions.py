"""Every query on sessions and their samplers."""

from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from windlass.core.clock import now_seconds
from windlass.core.db import Database
from windlass.core.db.paging import newest_first
from windlass.core.errors import AlreadyExists
from windlass.tuning.domain import unknown_sampler, unknown_session
from windlass.tuning.storage.log import session_finished
from windlass.tuning.storage.tables import runs, samplers, sessions

Row = sa.Row[Any]
KNOWN_SAMPLERS = 1024


async def live_session(connection: AsyncConnection, project_id: str, session_id: str) -> Row:
    """A session that has not finished, kept from finishing in this transaction.

    Raises NotFound, and FailedPrecondition `session_finished`.
    """
    query = sessions.select().where(
        sessions.c.id == session_id, sessions.c.project_id == project_id
    )
    row = (await connection.execute(query.with_for_update(read=True))).first()
    if row is None:
        raise unknown_session(session_id)
    if row.end:
        raise session_finished()
    return row


def number_taken() -> AlreadyExists:
    """The error of a number that another run of the session has."""
    return AlreadyExists(
        "The session has another model of this number.",
        reason="body_differs",
        param="model_seq_id",
    )


class TuningSessionStore:
    """Sessions and samplers of every project."""

    def __init__(self, database: Database):
        self._database = database
        # What they are of never changes, and each request asks for it twice.
        self._samplers: OrderedDict[tuple[str, str], Row] = OrderedDict()

    async def create(self, values: dict[str, Any]) -> None:
        """Stores a session, which lives from now."""
        now = now_seconds()
        async with self._database.begin() as connection:
            await connection.execute(
                sessions.insert().values(created_at=now, heartbeat_at=now, **values)
            )

    async def beat(self, project_id: str, session_id: str) -> None:
        """Keeps a session alive; raises NotFound, FailedPrecondition `session_finished`."""
        ours = sa.and_(sessions.c.id == session_id, sessions.c.project_id == project_id)
        async with self._database.begin() as connection:
            found = await connection.execute(
                sessions.update()
                .where(ours, sessions.c.end == "")
                .values(heartbeat_at=now_seconds())
            )
        if not found.rowcount:
            await self.get(project_id, session_id)
            raise session_finished()

    async def finish(self, project_id: str, session_id: str, end: str, detail: str) -> Row:
        """Ends a session once; the first end stands. Raises NotFound."""
        ours = sa.and_(sessions.c.id == session_id, sessions.c.project_id == project_id)
        async with self._database.begin() as connection:
            await connection.execute(
                sessions.update().where(ours, sessions.c.end == "").values(end=end, detail=detail)
            )
        return await self.get(project_id, session_id)

    async def get(self, project_id: str, session_id: str) -> Row:
        """A session of the project; raises NotFound."""
        query = sessions.select().where(
            sessions.c.id == session_id, sessions.c.project_id == project_id
        )
        async with self._database.autocommit() as connection:
            row = (await connection.execute(query)).first()
        if row is None:
            raise unknown_session(session_id)
        return row

    async def children(self, session_id: str) -> tuple[list[str], list[str]]:
        """The ids of a session's runs and samplers."""
        async with self._database.autocommit() as connection:
            found = [
                list(
                    await connection.scalars(
                        sa.select(table.c.id)
                        .where(table.c.session_id == session_id)
                        .order_by(table.c.created_at, table.c.id)
                    )
                )
                for table in (runs, samplers)
            ]
        return found[0], found[1]

    async def list(self, project_id: str, *, after: str, limit: int, offset: int) -> Sequence[Row]:
        """Sessions of the project, the latest first."""
        ours = sessions.c.project_id == project_id
        query = newest_first(
            sessions.select().where(ours),
            sessions.c.created_at,
            sessions.c.id,
            after=after,
            of=ours,
        )
        async with self._database.autocommit() as connection:
            rows = await connection.execute(query.limit(limit).offset(offset))
            return list(rows)

    async def join_sampler(self, project_id: str, sampler_id: str) -> int:
        """Counts one more client of a sampler, and returns its number; raises NotFound."""
        statement = (
            samplers.update()
            .where(samplers.c.id == sampler_id, samplers.c.project_id == project_id)
            .values(clients=samplers.c.clients + 1)
            .returning(samplers.c.clients)
        )
        async with self._database.autocommit() as connection:
            number = (await connection.execute(statement)).scalar_one_or_none()
        if number is None:
            raise unknown_sampler(sampler_id)
        return int(number)

    async def create_sampler(self, project_id: str, values: dict[str, Any]) -> Row:
        """Stores a sampler of a live session; a repeat answers the first one.

        Raises AlreadyExists for the same number with another model.
        """
        async with self._database.begin() as connection:
            await live_session(connection, project_id, values["session_id"])
            statement = insert(samplers).values(created_at=now_seconds(), **values)
            await connection.execute(statement.on_conflict_do_nothing(index_elements=["id"]))
            query = samplers.select().where(samplers.c.id == values["id"])
            row = (await connection.execute(query)).one()
        if (row.base_model, row.checkpoint_id) != (values["base_model"], values["checkpoint_id"]):
            raise AlreadyExists(
                "The session has another sampler of this number.",
                reason="body_differs",
                param="sampling_session_seq_id",
            )
        return row

    async def sampler(self, project_id: str, sampler_id: str) -> Row:
        """A sampler of the project, but for its clients as it is; raises NotFound."""
        if (known := self._samplers.get((project_id, sampler_id))) is not None:
            return known
        query = samplers.select().where(
            samplers.c.id == sampler_id, samplers.c.project_id == project_id
        )
        async with self._database.autocommit() as connection:
            row = (await connection.execute(query)).first()
        if row is None:
            raise unknown_sampler(sampler_id)
        self._samplers[project_id, sampler_id] = row
        if len(self._samplers) > KNOWN_SAMPLERS:
            self._samplers.popitem(last=False)
        return row
