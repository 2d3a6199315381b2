"""Latest revisions of the clusters' streams; many watches share one query."""

from collections.abc import Sequence
from typing import NamedTuple

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import ARRAY

from windlass.clusters.domain.records import CLUSTER_TOPIC
from windlass.clusters.storage.tables import clusters, counters
from windlass.core.db import Database
from windlass.core.db.coalescing import Coalescer

_HEADS = (
    sa.select(
        clusters.c.id,
        clusters.c.session_id,
        clusters.c.spec_revision,
        sa.func.coalesce(counters.c.revision, 0).label("revision"),
    )
    .outerjoin_from(
        clusters, counters, counters.c.stream == sa.func.concat(CLUSTER_TOPIC, clusters.c.id)
    )
    .where(clusters.c.id == sa.any_(sa.bindparam("ids", type_=ARRAY(sa.Text))))
)


class StreamHead(NamedTuple):
    """A cluster's current session, the revision of its spec, and that of its newest workload."""

    session_id: str
    spec_revision: int
    revision: int


class StreamHeadReader:
    """Reads stream heads in batches, since every watch polls its own."""

    def __init__(self, database: Database):
        self._database = database
        self._coalescer: Coalescer[str, StreamHead | None] = Coalescer(
            "heads of clusters", self._read, batch=1000, abreast=1
        )

    async def get(self, cluster_id: str) -> StreamHead | None:
        """The head at the time of the call or newer; None for an unregistered cluster."""
        return await self._coalescer(cluster_id)

    async def _read(self, cluster_ids: Sequence[str]) -> list[StreamHead | None]:
        async with self._database.autocommit() as connection:
            rows = (await connection.execute(_HEADS, {"ids": list(set(cluster_ids))})).all()
        found = {
            row.id: StreamHead(row.session_id, row.spec_revision, row.revision) for row in rows
        }
        return [found.get(cluster_id) for cluster_id in cluster_ids]
