"""Queries on how models are served."""

from collections.abc import Callable, Mapping, Sequence

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert

from windlass.core.db import Database
from windlass.core.db.leases import no_rows
from windlass.core.leaving.tables import leaves
from windlass.core.quotas import Quota, Quotas
from windlass.core.rpc import audited
from windlass.engine_arguments import chosen
from windlass.inference.domain import IN_USE_SECONDS, Serving
from windlass.inference.loads import CLOCK
from windlass.inference.store import servings, to_serving, wants

# What may be kept running is counted by one transaction at a time.
_LOCK = sa.select(sa.func.pg_advisory_xact_lock(sa.func.hashtext("inference_servings")))

# Names of them, which one message holds.
MAX_DRAFTED = 500

# Raises for a serving that would be too much beside others, within the quotas of engines by id.
Check = Callable[[Serving, Sequence[Serving], Mapping[str, int]], None]


class ServingStore:
    """Servings, each of one model of a project; of all projects where that is empty."""

    def __init__(self, database: Database, quotas: Quotas):
        self._database = database
        self._quotas = quotas
        # Whether no serving is of a project.
        self.is_empty = no_rows(database, servings.c.project_id != "")

    async def put(self, serving: Serving, check: Check) -> None:
        """Sets how a model is served, unless `check` has something against it."""
        values = {name: getattr(serving, name) for name in Serving.__slots__}
        values |= {"updated_at": CLOCK, "arguments": chosen(serving.arguments)}
        values["schedule"] = [window.model_dump() for window in serving.schedule]
        values["clusters"] = dict(serving.clusters)
        statement = insert(servings).values(values)
        statement = statement.on_conflict_do_update(
            index_elements=["project_id", "model"], set_=values
        )
        async with self._database.begin() as connection:
            await connection.execute(_LOCK)
            found = await connection.execute(servings.select().where(sa.not_(_of(serving))))
            quotas = await self._quotas.all(connection, Quota.ENGINES)
            check(serving, [to_serving(row) for row in found.mappings()], quotas)
            former = (await connection.execute(servings.select().where(_of(serving)))).mappings()
            before = former.first()
            audited.change(to_serving(before) if before else None, serving, resource=serving.model)
            await connection.execute(statement)

    async def delete(self, serving: Serving) -> None:
        """Removes a serving, and the wish for its model unless somebody asked for it lately."""
        async with self._database.begin() as connection:
            await connection.execute(servings.delete().where(_of(serving)))
            audited.change(serving, None, resource=serving.model)
            await connection.execute(
                wants.delete().where(
                    wants.c.version_id == serving.version_id,
                    wants.c.used_at < CLOCK - IN_USE_SECONDS,
                )
            )

    async def projects(self) -> list[str]:
        """Ids of projects that have servings and do not leave; models for everyone have none."""
        stays = sa.not_(leaves(servings.c.project_id))
        query = sa.select(servings.c.project_id).where(servings.c.project_id != "", stays)
        async with self._database.autocommit() as connection:
            return [row.project_id for row in await connection.execute(query.distinct())]

    async def delete_all(self, project_id: str) -> int:
        """Removes the servings of a project; returns how many."""
        async with self._database.begin() as connection:
            found = await connection.execute(
                servings.delete().where(servings.c.project_id == project_id)
            )
        return found.rowcount

    async def models_of(self, version_id: str) -> list[str]:
        """Names of the models whose serving is of this version."""
        query = sa.select(servings.c.model).where(servings.c.version_id == version_id)
        async with self._database.autocommit() as connection:
            return [row.model for row in await connection.execute(query)]

    async def find(self, project_id: str, model: str) -> Serving | None:
        """The serving of a project's own model; None where there is none."""
        own = servings.c.project_id == project_id, servings.c.model == model
        async with self._database.autocommit() as connection:
            row = (await connection.execute(servings.select().where(*own))).mappings().first()
        return None if row is None else to_serving(row)

    async def draft_of(self, project_id: str, model: str) -> str:
        """The version that guesses for a model, as its serving says; empty for none."""
        query = sa.select(servings.c.draft_version_id).where(
            servings.c.project_id == project_id, servings.c.model == model
        )
        async with self._database.autocommit() as connection:
            return (await connection.execute(query)).scalar() or ""

    async def drafted_by(self, version_id: str) -> list[tuple[str, str]]:
        """Projects and names of models for which this version guesses, `MAX_DRAFTED` at most."""
        query = (
            sa.select(servings.c.project_id, servings.c.model)
            .where(servings.c.draft_version_id == version_id)
            .limit(MAX_DRAFTED)
        )
        async with self._database.autocommit() as connection:
            return [(row.project_id, row.model) for row in await connection.execute(query)]


def _of(serving: Serving) -> sa.ColumnElement[bool]:
    return sa.and_(servings.c.project_id == serving.project_id, servings.c.model == serving.model)
