"""Metrics of agents, for operators."""

from datetime import timedelta

import sqlalchemy as sa

from windlass.clusters.domain import records
from windlass.clusters.storage.tables import clusters
from windlass.core.db import Database
from windlass.metrics.clusters import AGENTS

EXECUTORS = ("kubernetes", "process")
LIVE, SILENT, NEVER_SEEN = "live", "silent", "never_seen"
_SINCE = sa.func.now() - timedelta(seconds=records.LIVE_SECONDS)
_STATE = sa.case(
    (clusters.c.last_seen_at.is_(None), NEVER_SEEN),
    (clusters.c.last_seen_at > _SINCE, LIVE),
    else_=SILENT,
)
# Of a table with a row for each cluster.
_COUNTS = sa.select(clusters.c.executor, _STATE.label("state"), sa.func.count()).group_by(
    sa.literal_column("1"), sa.literal_column("2")
)


class AgentCounts:
    """Counts of agents by executor and state."""

    def __init__(self, database: Database):
        self._database = database

    async def take(self) -> None:
        """Reads them anew."""
        async with self._database.autocommit() as connection:
            rows = await connection.execute(_COUNTS)
            found = {(executor, state): many for executor, state, many in rows}
        for executor in EXECUTORS:
            for state in (LIVE, SILENT, NEVER_SEEN):
                AGENTS.labels(executor, state).set(found.get((executor, state), 0))
