"""The operations of a session with their times."""

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa

from windlass.core.db import Database
from windlass.tuning.storage.tables import operations, runs, samplers

# Of one trace: the latest.
MOST = 20_000


async def operations_of(database: Database, session_id: str) -> Sequence[sa.Row[Any]]:
    """Operations of a session's runs and samplers, the latest, each with what it was asked of."""
    columns = (
        operations.c.seq_id, operations.c.state, operations.c.created_at, operations.c.finished_at,
        operations.c.sequence,
    )  # fmt: skip
    asked = [
        sa.select(*columns, table.c.id.label("track"))
        .join(table, table.c.id == column)
        .where(table.c.session_id == session_id)
        for table, column in ((runs, operations.c.run_id), (samplers, operations.c.sampler_id))
    ]
    both = sa.union_all(*asked).subquery()
    query = both.select().order_by(both.c.sequence.desc()).limit(MOST)
    async with database.autocommit() as connection:
        return list(await connection.execute(query))
