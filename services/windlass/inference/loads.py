"""Table of the requests that gateways have open, by version of the engines that answer."""

from collections.abc import Mapping

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from windlass.core.db import Database, metadata

# One clock for all replicas, in Unix seconds.
CLOCK = sa.cast(sa.extract("epoch", sa.func.clock_timestamp()), sa.Double)
# What a gateway said before that counts no more: it may be gone.
CURRENT_SECONDS = 10.0
# Versions of one report; those with the most requests count.
MOST_VERSIONS = 1000

loads = sa.Table(
    "inference_loads",
    metadata,
    sa.Column("reporter", sa.Text, primary_key=True),
    sa.Column("engine_version_id", sa.Text, primary_key=True),
    sa.Column("open_requests", sa.Integer, nullable=False),
    sa.Column("at", sa.Double, nullable=False, index=True),
)


class LoadStore:
    """Reports of gateways; each replaces the one before."""

    def __init__(self, database: Database):
        self._database = database

    async def report(self, reporter: str, open_requests: Mapping[str, int]) -> None:
        """Stores how many requests a gateway has open, and drops what counts no more."""
        most = sorted(open_requests.items(), key=lambda one: -one[1])[:MOST_VERSIONS]
        rows = [
            {
                "reporter": reporter,
                "engine_version_id": version,
                "open_requests": max(0, number),
                "at": CLOCK,
            }
            for version, number in most
        ]
        old = sa.or_(loads.c.reporter == reporter, loads.c.at < CLOCK - CURRENT_SECONDS)
        async with self._database.begin() as connection:
            await connection.execute(loads.delete().where(old))
            if rows:
                await connection.execute(insert(loads).values(rows))


async def current(connection: AsyncConnection) -> dict[str, int]:
    """The open requests of all gateways, by version."""
    query = (
        sa.select(loads.c.engine_version_id, sa.func.sum(loads.c.open_requests).label("number"))
        .where(loads.c.at >= CLOCK - CURRENT_SECONDS)
        .group_by(loads.c.engine_version_id)
    )
    return {row.engine_version_id: int(row.number) for row in await connection.execute(query)}
