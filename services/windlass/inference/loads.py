"""Table of the requests that gateways have open, by version of the engines that answer."""

from collections.abc import Mapping

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from windlass.core.db import Database, metadata

# One clock for all replicas, in Unix seconds.
CLOCK = sa.cast(sa.extract("epoch", sa.func.clock_timestamp()), sa.Double)
# What a gateway said before that counts no more: it may be gone.
CURRENT_SECONDS = 10.0

loads = sa.Table(
    "inference_loads",
    metadata,
    sa.Column("reporter", sa.Text, primary_key=True),
    sa.Column("engine_version_id", sa.Text, primary_key=True),
    sa.Column("open_requests", sa.Integer, nullable=False),
    sa.Column("at", sa.Double, nullable=False, index=True),
)

# Versions whose number of engines follows load.
_SCALED = sa.text(
    "SELECT engine_version_id FROM inference_servings"
    " WHERE max_replicas > greatest(1, min_replicas)"
)


class LoadStore:
    """Reports of gateways; each replaces the one before."""

    def __init__(self, database: Database):
        self._database = database

    async def report(self, reporter: str, open_requests: Mapping[str, int]) -> None:
        """Stores how many requests a gateway has open of what load scales, for ten seconds."""
        async with self._database.begin() as connection:
            scaled = {row.engine_version_id for row in await connection.execute(_SCALED)}
            await connection.execute(loads.delete().where(loads.c.reporter == reporter))
            rows = [
                {"reporter": reporter, "engine_version_id": version, "open_requests": number}
                for version, number in open_requests.items()
                if version in scaled
            ]
            if rows:
                await connection.execute(loads.insert().values(at=CLOCK), rows)


async def sweep(connection: AsyncConnection) -> None:
    """Removes what gateways said that are gone."""
    await connection.execute(loads.delete().where(loads.c.at < CLOCK - 6 * CURRENT_SECONDS))


async def current(connection: AsyncConnection) -> dict[str, int]:
    """The open requests of all gateways, by version."""
    query = (
        sa.select(loads.c.engine_version_id, sa.func.sum(loads.c.open_requests).label("number"))
        .where(loads.c.at >= CLOCK - CURRENT_SECONDS)
        .group_by(loads.c.engine_version_id)
    )
    return {row.engine_version_id: int(row.number) for row in await connection.execute(query)}
