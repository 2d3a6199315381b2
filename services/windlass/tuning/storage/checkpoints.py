"""Every query on checkpoints."""

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import sqlalchemy as sa

from windlass.core.clock import now_seconds
from windlass.core.db import Database
from windlass.core.db.paging import newest_first
from windlass.tuning.domain import CheckpointPath, Reader, unknown_checkpoint
from windlass.tuning.storage.bounds import TuningBounds
from windlass.tuning.storage.tables import checkpoints, loans

Row = sa.Row[Any]


def prefix_of(project_id: str, checkpoint_id: str) -> str:
    """The prefix of a checkpoint's objects."""
    return f"tuning/{project_id}/checkpoints/{checkpoint_id}/"


def archive_of(project_id: str, checkpoint_id: str) -> str:
    """The key of a checkpoint's archive."""
    return f"tuning/{project_id}/archives/{checkpoint_id}.tar"


def live_checkpoints() -> sa.ColumnElement[bool]:
    """The condition of checkpoints that are whole, and neither deleted nor expired."""
    ends = checkpoints.c.expires_at
    is_whole = checkpoints.c.state == sa.literal_column("'ready'")
    return sa.and_(is_whole, sa.or_(ends == 0, ends > now_seconds()))


class WeightsStore:
    """Checkpoints of every project."""

    def __init__(self, database: Database, bounds: TuningBounds):
        self._database = database
        self._bounds = bounds

    async def find(self, reader: Reader, path: CheckpointPath) -> Row:
        """A checkpoint that the project may read, by its path; raises NotFound."""
        query = checkpoints.select().where(_at(path), readable_by(reader))
        row = await self._first(query)
        if row is None:
            raise unknown_checkpoint(str(path))
        return row

    async def lent(self, secret: str, path: CheckpointPath) -> Row:
        """A checkpoint that was lent to whoever shows the secret; raises NotFound."""
        query = checkpoints.select().join(loans, loans.c.checkpoint_id == checkpoints.c.id)
        row = await self._first(
            query.where(_at(path), loans.c.digest == _digest(secret))
            .where(loans.c.expires_at > now_seconds())
        )  # fmt: skip
        if row is None:
            raise unknown_checkpoint(str(path))
        return row

    async def lend(self, reader: Reader, path: CheckpointPath, secret: str, until: int) -> None:
        """Lends a checkpoint of the project's own to whoever shows a secret; raises NotFound."""
        found = await self.find(reader, path)
        if found.project_id != reader.project_id:
            raise unknown_checkpoint(str(path))
        async with self._database.begin() as connection:
            await connection.execute(
                loans.insert().values(
                    digest=_digest(secret),
                    organization_id=reader.organization_id,
                    project_id=reader.project_id,
                    checkpoint_id=found.id,
                    expires_at=until,
                )
            )

    async def owner(self, reader: Reader, checkpoint_id: str, path: str) -> str:
        """The project of a checkpoint that another one may read still; raises NotFound."""
        query = checkpoints.select().where(checkpoints.c.id == checkpoint_id, readable_by(reader))
        row = await self._first(query)
        if row is None:
            raise unknown_checkpoint(path)
        return str(row.project_id)

    async def whole(self, checkpoint_id: str) -> Row | None:
        """A checkpoint that a request was let read; None when it is gone."""
        return await self._first(
            checkpoints.select().where(checkpoints.c.id == checkpoint_id, live_checkpoints())
        )

    async def _first(self, query: sa.Select[Any]) -> Row | None:
        async with self._database.autocommit() as connection:
            found: Row | None = (await connection.execute(query)).first()
        return found

    async def list(
        self, project_id: str, *, run_id: str, after: str, limit: int, offset: int
    ) -> tuple[Sequence[Row], int]:
        """Named checkpoints of the project, or of one run, the latest first; and how many."""
        ours = sa.and_(
            checkpoints.c.project_id == project_id, checkpoints.c.name != "", live_checkpoints()
        )
        if run_id:
            ours = sa.and_(ours, checkpoints.c.run_id == run_id)
        query = newest_first(
            checkpoints.select().where(ours),
            checkpoints.c.created_at,
            checkpoints.c.id,
            after=after,
            of=ours,
        )
        async with self._database.autocommit() as connection:
            rows = (await connection.execute(query.limit(limit).offset(offset))).all()
            count = await connection.execute(sa.select(sa.func.count()).where(ours))
            return rows, count.scalar_one()

    async def begin(self, values: dict[str, Any]) -> None:
        """Stores a checkpoint that is about to be written.

        Raises PermissionDenied `quota_exceeded`, but for states without a name: runs need them.
        """
        async with self._database.begin() as connection:
            if values["name"] or values["is_for_sampler"]:
                await self._bounds.require_checkpoint(connection, values)
            await connection.execute(
                checkpoints.insert().values(state="writing", created_at=now_seconds(), **values)
            )

    async def complete(
        self, project_id: str, checkpoint_id: str, size: int, files: Mapping[str, str]
    ) -> None:
        """Lets a checkpoint be read that was written whole."""
        async with self._database.begin() as connection:
            await connection.execute(
                checkpoints.update()
                .where(checkpoints.c.id == checkpoint_id, checkpoints.c.project_id == project_id)
                .values(state="ready", size=size, files=dict(files))
            )

    async def mark_deleting(self, project_id: str, path: CheckpointPath) -> None:
        """Takes a checkpoint away; the sweeper removes its objects. Raises NotFound."""
        await self._change(project_id, path, state="deleting")

    async def expire_at(self, project_id: str, path: CheckpointPath, moment: int) -> None:
        """Sets when a checkpoint goes, 0 for never. Raises NotFound."""
        await self._change(project_id, path, expires_at=moment)

    async def publish(self, project_id: str, path: CheckpointPath, *, is_published: bool) -> None:
        """Lets the organization's other projects read a checkpoint, or ends it. Raises NotFound."""
        await self._change(project_id, path, is_published=is_published)

    async def _change(self, project_id: str, path: CheckpointPath, **values: Any) -> None:
        async with self._database.begin() as connection:
            found = await connection.execute(
                checkpoints.update()
                .where(checkpoints.c.project_id == project_id, _at(path))
                .values(**values)
            )
        if not found.rowcount:
            raise unknown_checkpoint(str(path))


def readable_by(reader: Reader) -> sa.ColumnElement[bool]:
    """The condition of checkpoints that a project may read."""
    published = sa.and_(
        checkpoints.c.organization_id == reader.organization_id, checkpoints.c.is_published
    )
    return sa.or_(checkpoints.c.project_id == reader.project_id, published)


def _at(path: CheckpointPath) -> sa.ColumnElement[bool]:
    return sa.and_(
        checkpoints.c.run_id == path.run_id,
        checkpoints.c.is_for_sampler == path.is_for_sampler,
        checkpoints.c.is_external == path.is_external,
        checkpoints.c.name == path.name,
        checkpoints.c.name != "",
        live_checkpoints(),
    )


def _digest(secret: str) -> bytes:
    return hashlib.sha256(secret.encode()).digest()
