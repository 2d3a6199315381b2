"""The tables of inference, and every query on them."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import JSONB, insert

from windlass.bounds import NORMAL_PRIORITY, TARGET_CACHE
from windlass.core.db import Database, metadata
from windlass.core.db.leases import claim, held, lease_columns, no_rows, released
from windlass.core.leaving.tables import leaves
from windlass.core.quotas import Quota, Quotas
from windlass.engine_arguments import chosen, stored
from windlass.inference import loads
from windlass.inference.domain import (
    IN_USE_SECONDS,
    RUNNING,
    Engine,
    GatewayLine,
    Rows,
    Serving,
    WantedVersion,
)
from windlass.inference.loads import CLOCK
from windlass.inference.planning import EngineChanges
from windlass.inference.stacks.store import all_stacks
from windlass.serving_schedules import ScheduleWindow

LEASE_SECONDS = 30.0
_SCHEDULER = "engines"

engines = sa.Table(
    "inference_engines",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("version_id", sa.Text, nullable=False),
    sa.Column("model", sa.Text, nullable=False),
    sa.Column("project_id", sa.Text, nullable=False),
    sa.Column("organization_id", sa.Text, nullable=False),
    sa.Column("cluster_id", sa.Text, nullable=False),
    sa.Column("engine", sa.Text, nullable=False),
    sa.Column("desired", sa.Text, nullable=False),
    sa.Column("generation", sa.BigInteger, nullable=False),
    sa.Column("put_generation", sa.BigInteger, nullable=False),
    sa.Column("adapters", JSONB, nullable=False),
    sa.Column("created_at", sa.Double, nullable=False),
    sa.Column("urls_at", sa.Double, nullable=False),
    sa.Column("replica", sa.Integer, nullable=False, server_default="0"),
    sa.Column("arguments", JSONB, nullable=False, server_default="{}"),
    sa.Column("gpus", sa.Integer, nullable=False, server_default="0"),
    sa.Column("nodes", sa.Integer, nullable=False, server_default="0"),
    sa.Column("accelerator", sa.Text, nullable=False, server_default=""),
    sa.Column("memory_bytes", sa.BigInteger, nullable=False, server_default="0"),
    sa.Column("priority", sa.Text, nullable=False, server_default=NORMAL_PRIORITY),
    sa.Column("draft_version_id", sa.Text, nullable=False, server_default=""),
    sa.Column("sleeps", sa.Boolean, nullable=False, server_default=sa.false()),
    sa.Column("asleep", sa.Boolean, nullable=False, server_default=sa.false()),
    sa.Column("training", sa.Text, nullable=False, server_default=""),
    sa.Column("follow", sa.Text, nullable=False, server_default=""),
    sa.Column("followed_version", sa.BigInteger, nullable=False, server_default="0"),
    sa.Column("failures", sa.Integer, nullable=False),
    sa.Column("failed_at", sa.Double, nullable=False),
    sa.Column("retry_at", sa.Double, nullable=False),
    sa.Column("error", sa.Text, nullable=False),
    sa.Column("placement_reason", sa.Text, nullable=False, server_default=""),
    # Whatever two schedulers believe, one engine runs of each number of a version.
    sa.Index(
        "uq_inference_engines_running",
        "version_id",
        "replica",
        unique=True,
        postgresql_where=sa.text("desired = 'running'"),
    ),
)
wants = sa.Table(
    "inference_wants",
    metadata,
    sa.Column("version_id", sa.Text, primary_key=True),
    sa.Column("engine_version_id", sa.Text, nullable=False, index=True),
    sa.Column("used_at", sa.Double, nullable=False),
    sa.Column("since", sa.Double, nullable=False),
    sa.Column("error", sa.Text, nullable=False, server_default=""),
)
servings = sa.Table(
    "inference_servings",
    metadata,
    sa.Column("project_id", sa.Text, primary_key=True),
    sa.Column("model", sa.Text, primary_key=True),
    sa.Column("organization_id", sa.Text, nullable=False),
    sa.Column("version_id", sa.Text, nullable=False, index=True),
    sa.Column("engine_version_id", sa.Text, nullable=False),
    sa.Column("min_replicas", sa.Integer, nullable=False),
    sa.Column("engine", sa.Text, nullable=False, server_default=""),
    sa.Column("arguments", JSONB, nullable=False, server_default="{}"),
    sa.Column("gpus", sa.Integer, nullable=False, server_default="0"),
    sa.Column("nodes", sa.Integer, nullable=False, server_default="0"),
    sa.Column("accelerator", sa.Text, nullable=False, server_default=""),
    sa.Column("memory_bytes", sa.BigInteger, nullable=False, server_default="0"),
    sa.Column("priority", sa.Text, nullable=False, server_default=NORMAL_PRIORITY),
    sa.Column("draft_version_id", sa.Text, nullable=False, server_default=""),
    sa.Column("updated_at", sa.Double, nullable=False),
    sa.Column("error", sa.Text, nullable=False, server_default=""),
    sa.Column("max_replicas", sa.Integer, nullable=False, server_default="0"),
    sa.Column("target_requests", sa.Integer, nullable=False, server_default="0"),
    sa.Column("schedule", JSONB, nullable=False, server_default="[]"),
    sa.Column("idle_seconds", sa.Integer, nullable=False, server_default="0"),
    sa.Column("clusters", JSONB, nullable=False, server_default="{}"),
    sa.Column("target_cache", sa.Integer, nullable=False, server_default=str(TARGET_CACHE)),
    sa.Column("target_gpu", sa.Integer, nullable=False, server_default="0"),
    sa.Column("target_wait_seconds", sa.Integer, nullable=False, server_default="0"),
    sa.Column("sleep_seconds", sa.Integer, nullable=False, server_default="0"),
    sa.Column("dedicated", sa.Boolean, nullable=False, server_default=sa.false()),
    sa.Column("training", sa.Text, nullable=False, server_default=""),
    sa.Column("follow", sa.Text, nullable=False, server_default=""),
)
# One row: who plans now.
schedulers = sa.Table(
    "inference_schedulers",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    *lease_columns(),
)


def _to_engine(row: Any) -> Engine:
    values = {name: getattr(row, name) for name in Engine.__slots__}
    arguments = stored(row.arguments)
    return Engine(**values | {"adapters": tuple(row.adapters), "arguments": arguments})


def _values(engine: Engine) -> dict[str, Any]:
    values = {name: getattr(engine, name) for name in Engine.__slots__}
    return values | {"adapters": list(engine.adapters), "arguments": chosen(engine.arguments)}


def to_serving(row: sa.RowMapping) -> Serving:
    """The serving of a row."""
    windows = tuple(ScheduleWindow(**window) for window in row["schedule"])
    read = {
        "arguments": stored(row["arguments"]),
        "schedule": windows,
        "clusters": tuple(row["clusters"].items()),
    }
    return Serving(**{**row, **read})


def _same(serving: Serving) -> tuple[sa.ColumnElement[bool], ...]:
    """The row of a serving, unless it was set anew."""
    return (
        servings.c.project_id == serving.project_id,
        servings.c.model == serving.model,
        servings.c.updated_at == serving.updated_at,
    )


def _complaint(want: WantedVersion) -> sa.Update:
    if want.serving is not None:
        return servings.update().where(*_same(want.serving))
    return wants.update().where(wants.c.version_id == want.version_id)


# How models of projects that leave were served is kept for an undo, and means nothing meanwhile.
_STAYING = servings.select().where(sa.not_(leaves(servings.c.project_id)))


class InferenceStore:
    """Engines and wants."""

    def __init__(self, database: Database, quotas: Quotas):
        self._database = database
        self._quotas = quotas
        # Whether there is no engine, and none is wanted.
        self.is_empty = no_rows(
            database,
            engines.c.id.is_not(None),
            wants.c.version_id.is_not(None),
            servings.c.model.is_not(None),
        )

    async def want(self, version_id: str, engine_version_id: str) -> None:
        """Notes that a version is used now."""
        statement = insert(wants).values(
            version_id=version_id, engine_version_id=engine_version_id, used_at=CLOCK, since=CLOCK
        )
        statement = statement.on_conflict_do_update(
            index_elements=["version_id"], set_={"used_at": statement.excluded.used_at}
        )
        async with self._database.begin() as connection:
            await connection.execute(statement)

    async def rows(self) -> Rows:
        """Everything, with the time."""
        async with self._database.autocommit() as connection:
            now = (await connection.execute(sa.select(CLOCK))).scalar_one()
            found = await connection.execute(engines.select().order_by(engines.c.created_at))
            engine_rows = [_to_engine(row) for row in found]
            want_rows = [
                WantedVersion(**row)
                for row in (await connection.execute(wants.select())).mappings()
            ]
            serving_rows = [
                to_serving(row) for row in (await connection.execute(_STAYING)).mappings()
            ]
            quotas = await self._quotas.all(connection, Quota.ENGINES)
            scales = any(one.scales for one in serving_rows)
            load_rows = await loads.current(connection) if scales else ()
            tuned = any(one.version_id != one.engine_version_id for one in want_rows)
            adapter_loads = await loads.of_adapters(connection) if tuned else {}
            stacks = await all_stacks(connection)
        return Rows(
            now=now,
            engines=engine_rows,
            wants=want_rows,
            servings=serving_rows,
            quotas=quotas,
            loads={row.version: row.open_requests for row in load_rows},
            lines={
                row.version: GatewayLine(row.in_line, row.line_seconds, row.in_background)
                for row in load_rows
            },
            adapter_loads=adapter_loads,
            stacks=stacks,
        )

    @asynccontextmanager
    async def planning(self) -> AsyncIterator[bool]:
        """Yields whether this process alone plans, until the end of the block."""
        async with self._database.begin() as connection:
            row = insert(schedulers).values(id=_SCHEDULER)
            await connection.execute(row.on_conflict_do_nothing())
        token, rows = await claim(
            self._database, schedulers, sa.true(), limit=1, seconds=LEASE_SECONDS
        )
        try:
            yield bool(rows)
        finally:
            async with self._database.begin() as connection:
                await connection.execute(
                    schedulers.update().where(held(schedulers, token)).values(released())
                )

    async def apply(self, plan: EngineChanges) -> None:
        """Writes a plan; what another scheduler changed meanwhile stays as it is."""
        async with self._database.begin() as connection:
            await loads.sweep(connection)
            for want in plan.dropped:
                same = sa.and_(
                    wants.c.version_id == want.version_id, wants.c.used_at == want.used_at
                )
                await connection.execute(wants.delete().where(same))
            for serving in plan.ended:
                await connection.execute(servings.delete().where(*_same(serving)))
            for want, error in plan.errors:
                await connection.execute(_complaint(want).values(error=error))
            for old, new in plan.updates:
                await connection.execute(
                    engines.update()
                    .where(engines.c.id == old.id, engines.c.generation == old.generation)
                    .values(_values(new))
                )
            for engine in plan.creates:
                statement = insert(engines).values(_values(engine))
                await connection.execute(statement.on_conflict_do_nothing())

    async def mark_put(self, engine: Engine) -> None:
        """Notes that the cluster knows this generation."""
        async with self._database.begin() as connection:
            await connection.execute(
                engines.update()
                .where(engines.c.id == engine.id, engines.c.put_generation < engine.generation)
                .values(put_generation=engine.generation)
            )

    async def forget(self, engine: Engine) -> None:
        """Drops the row of an engine that its cluster was told to end."""
        async with self._database.begin() as connection:
            await connection.execute(engines.delete().where(engines.c.id == engine.id))

    async def users_of(self, version_id: str) -> Sequence[str]:
        """Engines that run this version, or have it guess, and were wanted within a minute."""
        recent = sa.exists().where(
            # Of an adapter's merged copy, the want of the adapter.
            engines.c.version_id.in_([wants.c.engine_version_id, wants.c.version_id]),
            wants.c.used_at > CLOCK - IN_USE_SECONDS,
        )
        uses = sa.or_(engines.c.version_id == version_id, engines.c.draft_version_id == version_id)
        query = sa.select(engines.c.id).where(uses, engines.c.desired == RUNNING, recent)
        async with self._database.autocommit() as connection:
            return [row.id for row in await connection.execute(query)]
