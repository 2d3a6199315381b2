"""Tables of the requests that gateways have open, by version of what answers."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.ext.asyncio import AsyncConnection

from windlass.api.inference.v1 import inference_pb2 as pb
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
    # Of these, those that wait for busy engines, how long the first of them has waited, and others
    # that let them go first.
    sa.Column("in_line", sa.Integer, nullable=False, server_default="0"),
    sa.Column("line_seconds", sa.Double, nullable=False, server_default="0"),
    sa.Column("in_background", sa.Integer, nullable=False, server_default="0"),
    sa.Column("at", sa.Double, nullable=False, index=True),
)
adapter_loads = sa.Table(
    "inference_adapter_loads",
    metadata,
    sa.Column("reporter", sa.Text, primary_key=True),
    # Numbers by the version of the adapter.
    sa.Column("requests", JSONB, nullable=False),
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

    async def report(self, said: pb.ReportLoadRequest) -> None:
        """Stores what a gateway has open of adapters and of what load scales, for ten seconds."""
        async with self._database.begin() as connection:
            scaled = {row.engine_version_id for row in await connection.execute(_SCALED)}
            await connection.execute(loads.delete().where(loads.c.reporter == said.reporter))
            lines = dict(said.lines)
            rows = [
                {
                    "reporter": said.reporter,
                    "engine_version_id": version,
                    "open_requests": number,
                    "in_line": (line := lines.get(version, pb.GatewayLine())).requests,
                    "line_seconds": line.seconds,
                    "in_background": line.background,
                }
                for version, number in said.open_requests.items()
                if version in scaled
            ]
            if rows:
                await connection.execute(loads.insert().values(at=CLOCK), rows)
            mine = adapter_loads.c.reporter == said.reporter
            await connection.execute(adapter_loads.delete().where(mine))
            if said.adapter_requests:
                row = {"reporter": said.reporter, "requests": dict(said.adapter_requests)}
                await connection.execute(adapter_loads.insert().values(at=CLOCK, **row))


async def sweep(connection: AsyncConnection) -> None:
    """Removes what gateways said that are gone."""
    for table in (loads, adapter_loads):
        await connection.execute(table.delete().where(table.c.at < CLOCK - 6 * CURRENT_SECONDS))


async def current(connection: AsyncConnection) -> Sequence[sa.Row[Any]]:
    """Rows with the sums of all gateways by `version`, and the longest wait of their lines."""
    query = (
        sa.select(
            loads.c.engine_version_id.label("version"),
            sa.cast(sa.func.sum(loads.c.open_requests), sa.Integer).label("open_requests"),
            sa.cast(sa.func.sum(loads.c.in_line), sa.Integer).label("in_line"),
            sa.func.max(loads.c.line_seconds).label("line_seconds"),
            sa.cast(sa.func.sum(loads.c.in_background), sa.Integer).label("in_background"),
        )
        .where(loads.c.at >= CLOCK - CURRENT_SECONDS)
        .group_by(loads.c.engine_version_id)
    )
    return (await connection.execute(query)).all()


async def of_adapters(connection: AsyncConnection) -> Mapping[str, int]:
    """The sums of all gateways by the version of an adapter."""
    query = sa.select(adapter_loads.c.requests).where(adapter_loads.c.at >= CLOCK - CURRENT_SECONDS)
    found = Counter[str]()
    for row in await connection.execute(query):
        found.update(row.requests)
    return found
