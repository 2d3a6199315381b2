"""Background work of files: inspecting, expiring, removing objects."""

import sqlalchemy as sa

from windlass.core import telemetry
from windlass.core.clock import now_seconds
from windlass.core.db import Database
from windlass.core.db.leases import claim, held, no_rows, released
from windlass.core.db.wake import Wake
from windlass.core.objects import (
    ObjectDamaged,
    ObjectNotFound,
    ObjectStore,
    SealingKeyUnavailable,
)
from windlass.core.quotas import count_stored
from windlass.files.inspection import inspect
from windlass.files.store import files, uploads

log = telemetry.logger("files")
LEASE_SECONDS = 300.0
# A ticket that is neither committed nor aborted ends with its object after a day.
UPLOAD_SECONDS = 86400


class FilesScheduler:
    """Leased rounds; each does a little and says whether there may be more."""

    def __init__(self, database: Database, objects: ObjectStore, wake: Wake):
        self._database = database
        self._objects = objects
        self._wake = wake
        self.has_inspected_all = no_rows(database, files.c.status == "uploaded")
        # Literals, since a plan with parameters could not use the partial indexes.
        self.has_swept_all = no_rows(
            database,
            files.c.status == sa.literal_column("'deleting'"),
            files.c.expires_at > sa.literal_column("0"),
            uploads.c.id.is_not(None),
        )

    async def inspect_one(self) -> bool:
        """Inspects a fine-tuning file that was too large to inspect at upload."""
        token, rows = await claim(
            self._database, files, files.c.status == "uploaded", limit=1, seconds=LEASE_SECONDS
        )
        for row in rows:
            try:
                verdict = await inspect(self._objects, row.object_key)
            except ObjectNotFound:
                continue  # deleted meanwhile
            except (SealingKeyUnavailable, ObjectDamaged) as error:
                # Once more when the lease has run out; others' files wait for nobody's key.
                log.warning("file_not_inspected", file_id=row.id, reason=str(error))
                continue
            async with self._database.begin() as connection:
                await connection.execute(
                    files.update()
                    .where(files.c.id == row.id, files.c.status == "uploaded")
                    .where(held(files, token))
                    .values(
                        status=verdict.status,
                        status_details=verdict.details,
                        dataset_format=verdict.format,
                        examples=verdict.examples,
                        **released(),
                    )
                )
            self._wake.touch("files")
            self._wake.touch("jobs")
        return bool(rows)

    async def sweep(self) -> bool:
        """Expires files, then removes the objects of what is deleted or was abandoned."""
        async with self._database.begin() as connection:
            await connection.execute(
                files.update()
                .where(files.c.expires_at > 0, files.c.expires_at <= now_seconds())
                .where(files.c.status != "deleting")
                .values(status="deleting")
            )
        return await self._sweep_files() or await self._sweep_uploads()

    async def _sweep_files(self) -> bool:
        token, rows = await claim(
            self._database, files, files.c.status == "deleting", limit=20, seconds=LEASE_SECONDS
        )
        for row in rows:
            await self._objects.delete(row.object_key)
            await self._remove_file(row.id, token)
        return bool(rows)

    async def _remove_file(self, file_id: str, token: str) -> None:
        gone = files.delete().where(files.c.id == file_id, held(files, token))
        async with self._database.begin() as connection:
            row = (await connection.execute(gone.returning(files))).first()
            if row is not None:
                await count_stored(connection, row.organization_id, row.project_id, -row.size)

    async def _sweep_uploads(self) -> bool:
        stale = uploads.c.created_at < now_seconds() - UPLOAD_SECONDS
        token, rows = await claim(self._database, uploads, stale, limit=20, seconds=LEASE_SECONDS)
        for row in rows:
            if not row.committed:
                await self._objects.delete(row.object_key)
            async with self._database.begin() as connection:
                await connection.execute(
                    uploads.delete().where(uploads.c.id == row.id, held(uploads, token))
                )
        return bool(rows)
