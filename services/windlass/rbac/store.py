"""The audit log: append and read."""

from collections.abc import Iterable, Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert

from windlass.core.db import Database, metadata

COLUMNS = (
    "id", "at_ms", "organization_id", "project_id", "user_id", "key_id",
    "action", "resource", "outcome", "request_id",
)  # fmt: skip

audit_events = sa.Table(
    "rbac_audit_events",
    metadata,
    sa.Column("sequence", sa.BigInteger, sa.Identity(), primary_key=True),
    sa.Column("id", sa.Text, nullable=False, unique=True),
    sa.Column("at_ms", sa.BigInteger, nullable=False),
    *(sa.Column(name, sa.Text, nullable=False) for name in COLUMNS[2:]),
    sa.Index(None, "organization_id", "sequence"),
)


class AuditStore:
    """Every query on the audit log."""

    def __init__(self, database: Database):
        self._database = database

    async def append(self, events: Iterable[dict[str, Any]]) -> None:
        """Adds events; one that is there already is left as it is."""
        rows = list(events)
        if not rows:
            return
        statement = insert(audit_events).on_conflict_do_nothing(index_elements=["id"])
        async with self._database.begin() as connection:
            await connection.execute(statement, rows)

    async def list(self, organization_id: str, *, after: str, limit: int) -> Sequence[Any]:
        """Events of the organization, newest first, older than `after`."""
        query = audit_events.select().where(audit_events.c.organization_id == organization_id)
        if after:
            cursor = (
                sa.select(audit_events.c.sequence)
                .where(
                    audit_events.c.id == after,
                    audit_events.c.organization_id == organization_id,
                )
                .scalar_subquery()
            )
            query = query.where(audit_events.c.sequence < cursor)
        query = query.order_by(audit_events.c.sequence.desc()).limit(limit)
        async with self._database.autocommit() as connection:
            return (await connection.execute(query)).all()
