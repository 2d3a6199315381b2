"""Claims of the tables and objects of models, and the news of their end."""

import sqlalchemy as sa

from windlass.core.db import Database
from windlass.core.db.wake import Wake
from windlass.core.leaving.claims import (
    LeavingClaims,
    ObjectClaim,
    Scope,
    by_project,
    erased,
    nobodys,
    of_projects,
)
from windlass.models.domain import version_prefix
from windlass.models.revisions import next_revision
from windlass.models.tables import fetches, imports, models, stream, versions

_ROOT = version_prefix("").partition("/")[0]


def _names(scope: Scope) -> sa.ColumnElement[bool]:
    """Names of the projects, and those that others were granted for their versions."""
    granted = sa.select(versions.c.id).where(scope.has_project(versions.c.project_id))
    return sa.or_(scope.has_project(models.c.project_id), models.c.version_id.in_(granted))


def _prefixes(scope: Scope) -> sa.Select[tuple[str]]:
    """Weights of versions, whole or on their way; those that jobs made are below jobs' own root."""
    found = [by_project(_ROOT)(scope)]
    for table, column in ((versions, "id"), (imports, "version_id"), (fetches, "version_id")):
        identifier = table.c[column]
        made = f"{_ROOT}/" + identifier + "/"
        own = sa.and_(scope.has_project(table.c.project_id), identifier != "")
        if table is not versions:
            own = sa.and_(own, ~table.c.is_global)
        found.append(sa.select(made.label("prefix")).where(own))
    every = sa.union(*found).subquery()
    return sa.select(every.c.prefix)


CLAIMS = LeavingClaims(
    "models",
    (
        # Not the names that others were granted.
        erased(models, _names).exporting(of_projects(models)),
        erased(imports, of_projects(imports)),
        erased(fetches, of_projects(fetches)),
        erased(versions, of_projects(versions)).showing("digest"),
        nobodys(stream, "the number of the last change"),
    ),
    (ObjectClaim(_ROOT, _prefixes),),
)


class NamesEnd:
    """Ends the names of a scope for those who follow names, before their rows go."""

    def __init__(self, database: Database, wake: Wake):
        self._database = database
        self._wake = wake

    async def __call__(self, scope: Scope) -> str:
        """Returns what the erasure waits for."""
        live = sa.and_(_names(scope), ~models.c.deleted)
        query = sa.select(models.c.project_id, models.c.name).where(live).limit(1000)
        async with self._database.begin() as connection:
            revision = await next_revision(connection)
            rows = (await connection.execute(query)).all()
            for row in rows:
                revision = await next_revision(connection)
                await connection.execute(
                    models.update()
                    .where(models.c.project_id == row.project_id, models.c.name == row.name)
                    .values(deleted=True, revision=revision)
                )
        if not rows:
            return ""
        self._wake.touch("models")
        return "gateways, which are told that the names end"
