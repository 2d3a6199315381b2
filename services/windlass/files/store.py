"""The tables of files, and every query on them."""

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import ARRAY, JSONB, insert

from windlass.core.clock import now_seconds
from windlass.core.db import Database, metadata
from windlass.core.db.coalescing import Coalescer
from windlass.core.db.leases import lease_columns
from windlass.core.errors import NotFound
from windlass.core.quotas import Quota, Quotas, count_stored
from windlass.files.domain import File, InspectionResult, Upload

files = sa.Table(
    "files_files",
    metadata,
    sa.Column("sequence", sa.BigInteger, sa.Identity(), primary_key=True),
    sa.Column("id", sa.Text, nullable=False, unique=True),
    sa.Column("organization_id", sa.Text, nullable=False),
    sa.Column("project_id", sa.Text, nullable=False),
    sa.Column("filename", sa.Text, nullable=False),
    sa.Column("purpose", sa.Text, nullable=False),
    sa.Column("size", sa.BigInteger, nullable=False),
    sa.Column("sha256", sa.LargeBinary, nullable=False),
    sa.Column("created_at", sa.BigInteger, nullable=False),
    sa.Column("expires_at", sa.BigInteger, nullable=False, server_default="0"),
    # uploaded, processed, error; `deleting` is gone for everyone but the sweeper.
    sa.Column("status", sa.Text, nullable=False),
    sa.Column("status_details", sa.Text, nullable=False, server_default=""),
    sa.Column("dataset_format", sa.Text, nullable=False, server_default=""),
    sa.Column("examples", sa.BigInteger, nullable=False, server_default="0"),
    sa.Column("object_key", sa.Text, nullable=False),
    sa.Column("provenance", JSONB(none_as_null=True)),
    # Unique name of what a service registered; null for uploads.
    sa.Column("source", sa.Text, unique=True),
    *lease_columns(),
    sa.Index(None, "project_id", "sequence"),
    sa.Index("ix_files_files_uploaded", "id", postgresql_where=sa.text("status = 'uploaded'")),
    sa.Index("ix_files_files_deleting", "id", postgresql_where=sa.text("status = 'deleting'")),
    sa.Index("ix_files_files_expiring", "expires_at", postgresql_where=sa.text("expires_at > 0")),
)
uploads = sa.Table(
    "files_uploads",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("file_id", sa.Text, nullable=False, unique=True),
    sa.Column("organization_id", sa.Text, nullable=False),
    sa.Column("project_id", sa.Text, nullable=False),
    sa.Column("filename", sa.Text, nullable=False),
    sa.Column("purpose", sa.Text, nullable=False),
    sa.Column("expires_after", sa.BigInteger, nullable=False),
    sa.Column("object_key", sa.Text, nullable=False),
    sa.Column("provenance", JSONB(none_as_null=True)),
    sa.Column("created_at", sa.BigInteger, nullable=False),
    sa.Column("committed", sa.Boolean, nullable=False, server_default="false"),
    *lease_columns(),
    sa.Index(None, "created_at"),
    sa.Index("ix_files_uploads_open", "organization_id", postgresql_where=sa.text("NOT committed")),
)


def to_file(row: Any) -> File:
    """A row as a record."""
    return File(**{name: getattr(row, name) for name in File.__slots__})


def _live(at: Any = None) -> sa.ColumnElement[bool]:
    return sa.and_(
        files.c.status != "deleting",
        sa.or_(files.c.expires_at == 0, files.c.expires_at > (now_seconds() if at is None else at)),
    )


_WANTED = (
    sa.func.unnest(
        sa.bindparam("projects", type_=ARRAY(sa.Text)), sa.bindparam("files", type_=ARRAY(sa.Text))
    )
    .table_valued("project_id", "id", name="wanted")
    .render_derived()
)
# Made once: to make a statement costs as much as to run it.
_GET = (
    files.select()
    .join(
        _WANTED,
        sa.and_(files.c.id == _WANTED.c.id, files.c.project_id == _WANTED.c.project_id),
    )
    .where(_live(sa.bindparam("now")))
)


class FileStore:
    """Every query on files and uploads."""

    def __init__(self, database: Database, quotas: Quotas):
        self._database = database
        self._quotas = quotas
        self._get = Coalescer("get files", self._get_many, abreast=1)

    async def create_upload(self, upload: Upload) -> None:
        """Stores a ticket; raises what quotas raise."""
        values = {name: getattr(upload, name) for name in Upload.__slots__}
        scope = (upload.organization_id, upload.project_id)
        ours = uploads.c.project_id == upload.project_id
        count = sa.select(sa.func.count(), sa.func.count().filter(ours)).where(
            uploads.c.organization_id == upload.organization_id, ~uploads.c.committed
        )
        async with self._database.begin() as connection:
            held = await self._quotas.hold(connection, Quota.UPLOADS, *scope)
            everyone, own = (await connection.execute(count)).one()
            held.require(organization=everyone + 1, project=own + 1)
            await self._quotas.require_room(connection, *scope, size=1)
            await connection.execute(uploads.insert().values(created_at=now_seconds(), **values))

    async def upload(self, project_id: str, upload_id: str) -> Upload:
        """A ticket of the project; raises NotFound."""
        query = uploads.select().where(
            uploads.c.id == upload_id, uploads.c.project_id == project_id
        )
        async with self._database.autocommit() as connection:
            row = (await connection.execute(query)).first()
        if row is None:
            raise NotFound(f"No such upload: {upload_id!r}.", param="upload_id")
        return Upload(**{name: getattr(row, name) for name in Upload.__slots__})

    async def commit(
        self, upload: Upload, *, size: int, sha256: bytes, verdict: InspectionResult
    ) -> File:
        """Makes the ticket's object a file; a repeat answers the first file.

        Raises PermissionDenied `quota_exceeded`.
        """
        created = now_seconds()
        values = {
            "id": upload.file_id,
            "organization_id": upload.organization_id,
            "project_id": upload.project_id,
            "filename": upload.filename,
            "purpose": upload.purpose,
            "size": size,
            "sha256": sha256,
            "created_at": created,
            "expires_at": created + upload.expires_after if upload.expires_after else 0,
            "status": verdict.status,
            "dataset_format": verdict.format,
            "examples": verdict.examples,
            "object_key": upload.object_key,
            "provenance": upload.provenance,
        }
        async with self._database.begin() as connection:
            statement = insert(files).values(values)
            made = await connection.execute(
                statement.on_conflict_do_nothing(index_elements=["id"]).returning(files.c.id)
            )
            is_new = made.first() is not None
            await connection.execute(
                uploads.update().where(uploads.c.id == upload.id).values(committed=True)
            )
            row = await connection.execute(files.select().where(files.c.id == upload.file_id))
            file = to_file(row.one())
            if is_new:
                scope = (upload.organization_id, upload.project_id)
                await self._quotas.store(connection, *scope, size)
            return file

    async def drop_upload(self, project_id: str, upload_id: str) -> None:
        """Forgets a ticket that was not committed."""
        async with self._database.begin() as connection:
            await connection.execute(
                uploads.delete().where(
                    uploads.c.id == upload_id,
                    uploads.c.project_id == project_id,
                    ~uploads.c.committed,
                )
            )

    async def is_free(self, object_key: str) -> bool:
        """Returns True if no file has its content under this key."""
        query = sa.select(sa.exists().where(files.c.object_key == object_key))
        async with self._database.autocommit() as connection:
            return not (await connection.execute(query)).scalar_one()

    async def register(self, file: File, source: str) -> File:
        """Stores what a service wrote; a repeat of the source answers the first file.

        It is counted and never refused: what a job has made is not lost to a quota.
        """
        values = {name: getattr(file, name) for name in File.__slots__} | {"source": source}
        async with self._database.begin() as connection:
            statement = insert(files).values(values)
            made = await connection.execute(
                statement.on_conflict_do_nothing(index_elements=["source"]).returning(files.c.id)
            )
            is_new = made.first() is not None
            row = await connection.execute(files.select().where(files.c.source == source))
            if is_new:
                await count_stored(connection, file.organization_id, file.project_id, file.size)
            return to_file(row.one())

    async def get(self, project_id: str, file_id: str) -> File:
        """A live file of the project; raises NotFound."""
        file = await self._get((project_id, file_id))
        if file is None:
            raise NotFound(f"No such File object: {file_id}", param="id")
        return file

    async def _get_many(self, wanted: Sequence[tuple[str, str]]) -> Sequence[File | None]:
        projects, ids = map(list, zip(*set(wanted), strict=True))
        values = {"projects": projects, "files": ids, "now": now_seconds()}
        async with self._database.autocommit() as connection:
            rows = map(to_file, await connection.execute(_GET, values))
        found = {(file.project_id, file.id): file for file in rows}
        return [found.get(key) for key in wanted]

    async def list(
        self, project_id: str, *, purpose: str, after: str, limit: int, ascending: bool
    ) -> Sequence[File]:
        """Live files of the project by creation, past `after`."""
        query = files.select().where(files.c.project_id == project_id, _live())
        if purpose:
            query = query.where(files.c.purpose == purpose)
        order = files.c.sequence
        if after:
            cursor = (
                sa.select(files.c.sequence)
                .where(files.c.id == after, files.c.project_id == project_id)
                .scalar_subquery()
            )
            query = query.where(order > cursor if ascending else order < cursor)
        query = query.order_by(order if ascending else order.desc()).limit(limit)
        async with self._database.autocommit() as connection:
            return [to_file(row) for row in await connection.execute(query)]

    async def mark_deleting(self, project_id: str, file_id: str) -> None:
        """Takes the file away from its tenant; the sweeper removes the object."""
        async with self._database.begin() as connection:
            await connection.execute(
                files.update()
                .where(files.c.id == file_id, files.c.project_id == project_id)
                .values(status="deleting")
            )
