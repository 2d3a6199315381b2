"""The search of sessions."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from windlass.core.db import Database
from windlass.core.db.paging import newest_first
from windlass.tuning.storage.tables import checkpoints, runs, sessions

Row = sa.Row[Any]


@dataclass(frozen=True, slots=True)
class SessionQuery:
    """Words and states that sessions are searched for; what is empty matches all."""

    session_id: str = ""
    words: Sequence[str] = ()
    user_metadata: dict[str, Any] | None = None
    user_ids: Collection[str] = ()
    # Without any of these three, whatever the state.
    is_active: bool = False
    is_expired: bool = False
    ends: Collection[str] = ()
    # Whoever was heard of since then is active.
    alive_since: int = 0


class SessionSearch:
    """Reads sessions and what is counted of them."""

    def __init__(self, database: Database):
        self._database = database

    async def find(
        self, project_id: str, query: SessionQuery, *, after: str, limit: int
    ) -> list[tuple[Row, int, int]]:
        """Sessions of the project with the number and the bytes of their checkpoints."""
        ours = sessions.c.project_id == project_id
        matching = sessions.select().where(ours, *_conditions(query))
        page = newest_first(
            matching, sessions.c.created_at, sessions.c.id, after=after, of=ours
        ).limit(limit)
        async with self._database.autocommit() as connection:
            rows = (await connection.execute(page)).all()
            counted = await connection.execute(_counts(project_id, [row.id for row in rows]))
            counts = {row.session_id: (row.number, row.bytes) for row in counted}
        return [(row, *counts.get(row.id, (0, 0))) for row in rows]


def _conditions(query: SessionQuery) -> list[sa.ColumnElement[bool]]:
    found: list[sa.ColumnElement[bool]] = []
    named = [sessions.c.display_name.icontains(word, autoescape=True) for word in query.words]
    either = [sa.and_(*named)] if named else []
    if query.session_id:
        either.append(sessions.c.id == query.session_id)
    if either:
        found.append(sa.or_(*either))
    if query.user_metadata:
        found.append(sessions.c.user_metadata.contains(query.user_metadata))
    if query.user_ids:
        found.append(sessions.c.user_id.in_(query.user_ids))
    open_, alive = sessions.c.end == "", sessions.c.heartbeat_at >= query.alive_since
    states = []
    if query.is_active:
        states.append(sa.and_(open_, alive))
    if query.is_expired:
        states.append(sa.and_(open_, ~alive))
    if query.ends:
        states.append(sessions.c.end.in_(query.ends))
    if states:
        found.append(sa.or_(*states))
    return found


def _counts(project_id: str, session_ids: Sequence[str]) -> sa.Select[Any]:
    return (
        sa.select(
            runs.c.session_id,
            sa.func.count().label("number"),
            sa.func.sum(checkpoints.c.size).cast(sa.BigInteger).label("bytes"),
        )
        .join(checkpoints, checkpoints.c.run_id == runs.c.id)
        .where(runs.c.session_id.in_(session_ids), runs.c.project_id == project_id)
        .where(checkpoints.c.name != "", checkpoints.c.state == "ready")
        .group_by(runs.c.session_id)
    )
