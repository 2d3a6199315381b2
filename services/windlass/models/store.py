"""Every query on names and versions."""

from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any

import sqlalchemy as sa
from msgspec import convert, to_builtins
from sqlalchemy.dialects.postgresql import ARRAY, insert
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncConnection

from windlass.core.db import Database
from windlass.core.db.coalescing import Coalescer
from windlass.core.errors import AlreadyExists, FailedPrecondition, NotFound
from windlass.core.quotas import count_stored
from windlass.core.rpc.model_scope import unknown_model
from windlass.modelfiles.adapter_traits import AdapterTraits
from windlass.modelfiles.footprint import Footprint
from windlass.modelfiles.formats import Formats
from windlass.modelfiles.presets import ModelPreset
from windlass.modelfiles.quantization import Quantization
from windlass.models.domain import Kind, ModelTask, NameChange, Version, VersionState
from windlass.models.manifest import Manifest
from windlass.models.merged_copies import forget_copy, note_copy, tell_adapter, told_of
from windlass.models.revisions import next_revision
from windlass.models.tables import models, stream, versions

# Those that a refusal counts.
MAX_DEPENDANTS = 100


def to_version(row: Any) -> Version:
    """A row as a record."""
    values = {name: getattr(row, name) for name in Version.__slots__}
    return Version(
        **values
        | {
            "kind": Kind(row.kind),
            "task": ModelTask(row.task),
            "state": VersionState(row.state),
            "manifest": Manifest.from_json(row.manifest),
            "footprint": row.footprint and Footprint(**row.footprint),
            "quantization": row.quantization and convert(row.quantization, Quantization),
            "formats": Formats(**row.formats),
            "preset": row.preset and convert(row.preset, ModelPreset),
            "adapter": row.adapter and convert(row.adapter, AdapterTraits),
        }
    )


def values_of(version: Version) -> dict[str, Any]:
    """A record as the values of its row."""
    manifest = version.manifest
    return {name: getattr(version, name) for name in Version.__slots__} | {
        "manifest": manifest.to_json(),
        "footprint": version.footprint and asdict(version.footprint),
        "quantization": version.quantization and to_builtins(version.quantization),
        "formats": to_builtins(version.formats),
        "preset": version.preset and to_builtins(version.preset),
        "adapter": version.adapter and to_builtins(version.adapter),
        "digest": manifest.digest,
        "bytes": manifest.size,
    }


async def point(connection: AsyncConnection, version: Version, revision: int) -> None:
    """Points the version's name to it; raises AlreadyExists when it has another."""
    values = {
        "version_id": version.id,
        "deleted": False,
        "revision": revision,
        "grant_id": "",
        "created_at": version.created_at,
    }
    statement = (
        insert(models)
        .values(project_id=version.project_id, name=version.name, **values)
        .on_conflict_do_update(
            index_elements=["project_id", "name"], set_=values, where=models.c.deleted
        )
        .returning(models.c.version_id)
    )
    if (await connection.execute(statement)).first() is None:
        raise name_taken(version.name)


def name_taken(name: str) -> AlreadyExists:
    """The error of a name that has another content."""
    return AlreadyExists(
        f"A model {name!r} with other content already exists; delete it first.",
        reason="model_exists",
        param="id",
    )


def _named() -> sa.Select[Any]:
    return sa.select(versions).join(models, models.c.version_id == versions.c.id)


_WANTED = (
    sa.func.unnest(
        sa.bindparam("projects", type_=ARRAY(sa.Text)), sa.bindparam("names", type_=ARRAY(sa.Text))
    )
    .table_valued("project_id", "name", name="wanted")
    .render_derived()
)
# Made once: to make a statement costs as much as to run it. A project's own comes last.
_RESOLVE = (
    _named()
    .join(
        _WANTED,
        sa.and_(
            models.c.name == _WANTED.c.name,
            models.c.project_id.in_(["", _WANTED.c.project_id]),
        ),
    )
    .where(~models.c.deleted)
    .add_columns(_WANTED.c.project_id.label("asker"))
    .order_by(models.c.project_id)
)


class ModelStore:
    """Names and versions."""

    def __init__(self, database: Database):
        self._database = database
        self._resolve = Coalescer("resolve models", self._resolve_many, abreast=1)

    async def resolve(self, project_id: str, name: str) -> Version:
        """The version that a name means to the project; raises NotFound."""
        version = await self._resolve((project_id, name))
        if version is None:
            raise unknown_model(name)
        return version

    async def _resolve_many(self, wanted: Sequence[tuple[str, str]]) -> Sequence[Version | None]:
        projects, names = map(list, zip(*set(wanted), strict=True))
        values = {"projects": projects, "names": names}
        async with self._database.autocommit() as connection:
            rows = await connection.execute(_RESOLVE, values)
            found = {(row.asker, row.name): to_version(row) for row in rows}
        return [found.get(key) for key in wanted]

    async def version(self, version_id: str) -> Version:
        """Returns one version; raises NotFound."""
        async with self._database.autocommit() as connection:
            query = versions.select().where(versions.c.id == version_id)
            row = (await connection.execute(query)).first()
        if row is None:
            raise NotFound(f"No such model version: {version_id!r}.", reason="model_not_found")
        return to_version(row)

    async def registered(self, source: str) -> Version | None:
        """The version that a job registered under a source, whatever became of it."""
        async with self._database.autocommit() as connection:
            query = versions.select().where(versions.c.source == source)
            row = (await connection.execute(query)).first()
        return None if row is None else to_version(row)

    async def register(self, version: Version) -> Version:
        """Stores a job's artifact under its name; a repeat of the source answers the first.

        Raises FailedPrecondition when its base or its artifacts are gone, AlreadyExists
        when the name is taken.
        """
        try:
            async with self._database.begin() as connection:
                revision = await next_revision(connection)
                query = versions.select().where(versions.c.source == version.source)
                if (row := (await connection.execute(query)).first()) is not None:
                    return await told_of(connection, to_version(row), version.merged_of)
                version = await _on_base(connection, version)
                await _require_artifacts(connection, version.object_prefix)
                await connection.execute(versions.insert().values(values_of(version)))
                await point(connection, version, revision)
                await tell_adapter(connection, version)
                await note_copy(connection, version)
                # Never refused: what a job has made is not lost to a quota.
                scope = (version.organization_id, version.project_id)
                await count_stored(connection, *scope, version.manifest.size)
        except IntegrityError as error:
            raise name_taken(version.name) from error
        return version

    async def adopt(self, version: Version) -> Version:
        """Names a model of a serving stack; a repeat answers the first.

        Raises AlreadyExists when the name has another content.
        """
        own = (models.c.project_id == version.project_id, models.c.name == version.name)
        async with self._database.begin() as connection:
            revision = await next_revision(connection)
            row = (await connection.execute(_named().where(*own, ~models.c.deleted))).first()
            if row is not None:
                found = to_version(row)
                if (found.stack, found.upstream) != (version.stack, version.upstream):
                    raise name_taken(version.name)
                return found
            await connection.execute(versions.insert().values(values_of(version)))
            await point(connection, version, revision)
        return version

    async def adopted(self, stack: str, *, limit: int) -> tuple[Sequence[str], int]:
        """The first names of the models of a serving stack, and the number of all."""
        query = (
            sa.select(models.c.name, sa.func.count().over().label("number"))
            .join(versions, models.c.version_id == versions.c.id)
            .where(versions.c.stack == stack, ~models.c.deleted)
            .order_by(models.c.name)
            .limit(limit)
        )
        async with self._database.autocommit() as connection:
            rows = (await connection.execute(query)).all()
        return [row.name for row in rows], rows[0].number if rows else 0

    async def dependants(self, version_id: str) -> Sequence[tuple[str, str]]:
        """Project and name of live adapters that have this version as their base."""
        async with self._database.autocommit() as connection:
            return await _dependants(connection, version_id)

    async def copied(self, version_id: str) -> Sequence[Version]:
        """The adapters whose merged copy a version is."""
        query = versions.select().where(versions.c.merged_version_id == version_id)
        async with self._database.autocommit() as connection:
            return [to_version(row) for row in await connection.execute(query)]

    async def delete(self, version: Version) -> None:
        """Removes the name and leaves the version to the sweeper; idempotent.

        Raises FailedPrecondition while an adapter needs it.
        """
        async with self._database.begin() as connection:
            await next_revision(connection)
            if await _dependants(connection, version.id):
                raise in_use("adapters that were trained on it")
            # Its own name and those of grants; every change has a revision of its own.
            named = sa.and_(models.c.version_id == version.id, ~models.c.deleted)
            projects = (await connection.execute(sa.select(models.c.project_id).where(named))).all()
            for row in projects:
                await connection.execute(
                    models.update()
                    .where(named, models.c.project_id == row.project_id)
                    .values(deleted=True, revision=await next_revision(connection))
                )
            await connection.execute(
                versions.update()
                .where(versions.c.id == version.id, versions.c.state == VersionState.READY)
                .values(state=VersionState.DELETING)
            )
            await forget_copy(connection, version.id)

    async def revision(self) -> int:
        """The revision of the last change."""
        async with self._database.autocommit() as connection:
            found = (await connection.execute(sa.select(stream.c.revision))).scalar()
        return int(found or 0)

    async def changes(self, after: int, *, limit: int) -> list[NameChange]:
        """Names that changed after a revision, as they are now, in order."""
        query = (
            sa.select(*(models.c[name] for name in NameChange.__slots__))
            .where(models.c.revision > after)
            .order_by(models.c.revision)
            .limit(limit)
        )
        async with self._database.autocommit() as connection:
            return [NameChange(*row) for row in await connection.execute(query)]

    async def named(self, version_ids: Sequence[str], project_id: str = "") -> list[Version]:
        """Returns the versions that have a name of their own, or one that a project sees."""
        sees = models.c.project_id.in_(["", project_id]) if project_id else models.c.grant_id == ""
        query = _named().where(versions.c.id.in_(version_ids), ~models.c.deleted, sees)
        async with self._database.autocommit() as connection:
            return [to_version(row) for row in await connection.execute(query)]


def in_use(by: str) -> FailedPrecondition:
    """The error of deleting what something still needs."""
    return FailedPrecondition(f"The model is in use by {by}.", reason="model_in_use")


async def _dependants(connection: AsyncConnection, version_id: str) -> Sequence[tuple[str, str]]:
    query = (
        sa.select(versions.c.project_id, versions.c.name)
        .where(
            versions.c.base_version_id == version_id,
            versions.c.kind == Kind.ADAPTER,
            versions.c.state == VersionState.READY,
        )
        .order_by(versions.c.created_at.desc(), versions.c.name)
        .limit(MAX_DEPENDANTS)
    )
    return [(row.project_id, row.name) for row in await connection.execute(query)]


async def _on_base(connection: AsyncConnection, version: Version) -> Version:
    if not version.base_version_id:
        return version
    query = versions.select().where(versions.c.id == version.base_version_id)
    base = (await connection.execute(query)).first()
    gone = base is None or base.state != VersionState.READY
    # Complete weights live on without their base; an adapter does not.
    if gone and version.kind is Kind.ADAPTER:
        raise FailedPrecondition("The base model was deleted.", reason="base_model_deleted")
    if base is None:
        return version
    return _as_its_base(replace(version, base_model=base.name), to_version(base))


def _as_its_base(version: Version, base: Version) -> Version:
    """The version with what its base has of it: training changes neither shape nor template."""
    if version.kind is Kind.ADAPTER:
        return version
    shape = base.footprint and replace(
        base.footprint, weight_bytes=version.manifest.size, weight_width=0
    )
    return replace(
        version,
        model_type=base.model_type,
        footprint=shape,
        formats=base.formats,
        preset=base.preset,
    )


async def _require_artifacts(connection: AsyncConnection, prefix: str) -> None:
    query = sa.select(sa.literal(1)).where(
        overlapping(prefix),
        versions.c.state.in_([VersionState.REMOVING, VersionState.REMOVED]),
    )
    if (await connection.execute(query)).first() is not None:
        raise FailedPrecondition("The artifacts were deleted.", reason="artifacts_deleted")


def overlapping(prefix: str) -> sa.ColumnElement[bool]:
    """Versions whose folder contains this one or lies in it."""
    # A parent's folder is one of these few; a child's begins with ours.
    parts = prefix.rstrip("/").split("/")
    parents = ["/".join(parts[:count]) + "/" for count in range(1, len(parts) + 1)]
    return sa.or_(
        versions.c.object_prefix.in_(parents),
        versions.c.object_prefix.startswith(prefix, autoescape=True),
    )
