"""Lists of the models that a project sees, and the names that are much like an unknown one."""

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa

from windlass.core.db import Database
from windlass.core.errors import InvalidArgument
from windlass.core.rpc.model_scope import ModelScope
from windlass.core.suggestions import did_you_mean
from windlass.models.domain import Kind, Version
from windlass.models.store import to_version
from windlass.models.tables import models, versions

# The newest names of a project, and of all projects, that an unknown one is compared with.
COMPARED = 500


class ModelList:
    """Names by project, newest first."""

    def __init__(self, database: Database):
        self._database = database

    async def page(
        self,
        project_id: str,
        *,
        scope: ModelScope | None = None,
        after: str,
        limit: int,
        kinds: Sequence[Kind] = (),
        is_checkpoint: bool | None = None,
    ) -> Sequence[Version]:
        """The versions of a scope beyond the name `after`; a project's own hides a global one.

        Raises InvalidArgument for a cursor that is no name of the scope.
        """
        async with self._database.autocommit() as connection:
            beyond: sa.ColumnElement[bool] = sa.true()
            if after:
                created_at = (await connection.execute(_cursor(project_id, after))).scalar()
                if created_at is None or not (scope is None or scope.admits(after)):
                    raise InvalidArgument("after must be the id of a model.", param="after")
                place = sa.tuple_(models.c.created_at, models.c.name)
                beyond = place < sa.tuple_(sa.literal(created_at), after)
            wanted = [beyond]
            if scope is not None:
                wanted.append(scope.condition(models.c.name))
            if kinds:
                wanted.append(versions.c.kind.in_(kinds))
            if is_checkpoint is not None:
                wanted.append(versions.c.is_checkpoint == is_checkpoint)
            rows = await connection.execute(_seen(project_id, wanted, limit))
            return [to_version(row) for row in rows]

    async def suggestion(self, project_id: str, name: str) -> str:
        """A sentence that names a model of the project, or of all, much like an unknown one."""
        query = sa.union_all(
            *(
                sa.select(_named(owner).order_by(*_NEWEST).limit(COMPARED).subquery().c.name)
                for owner in (project_id, "")
            )
        )
        async with self._database.autocommit() as connection:
            known = (await connection.execute(query)).scalars().all()
        return did_you_mean(name, known)

    async def checkpoints(self, version: Version, *, limit: int) -> Sequence[str]:
        """The names of other checkpoints of the job that made a version."""
        query = (
            sa.select(models.c.name)
            .join(versions, versions.c.id == models.c.version_id)
            .where(models.c.project_id == version.project_id, ~models.c.deleted)
            .where(versions.c.job_id == version.job_id, versions.c.is_checkpoint)
            .where(versions.c.id != version.id)
            .order_by(*_NEWEST)
            .limit(limit)
        )
        async with self._database.autocommit() as connection:
            return (await connection.execute(query)).scalars().all()


_NEWEST = (models.c.created_at.desc(), models.c.name.desc())


def _named(owner: str) -> sa.Select[Any]:
    return sa.select(models.c.name, models.c.version_id, models.c.created_at).where(
        models.c.project_id == owner, ~models.c.deleted
    )


def _cursor(project_id: str, name: str) -> sa.Select[Any]:
    """The place of a name, deleted or not: what is listed may be deleted on the way."""
    return (
        sa.select(models.c.created_at)
        .where(models.c.name == name, models.c.project_id.in_([project_id, ""]))
        .order_by(models.c.deleted, models.c.project_id.desc())
        .limit(1)
    )


def _seen(project_id: str, wanted: Sequence[sa.ColumnElement[bool]], limit: int) -> sa.Select[Any]:
    own = models.alias()
    hidden = sa.exists().where(
        own.c.project_id == project_id, own.c.name == models.c.name, ~own.c.deleted
    )
    # Two walks along an index.
    walks = [
        named.join(versions, versions.c.id == models.c.version_id)
        .where(*wanted)
        .order_by(*_NEWEST)
        .limit(limit)
        .subquery()
        for named in (_named(project_id), _named("").where(~hidden))
    ]
    both = sa.union_all(*(sa.select(walk) for walk in walks)).subquery()
    return (
        sa.select(versions)
        .join(both, both.c.version_id == versions.c.id)
        .order_by(both.c.created_at.desc(), both.c.name.desc())
        .limit(limit)
    )
