"""An eraser whose lease another process takes while it lists removes nothing of what it listed."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any, cast

import pytest
import sqlalchemy as sa

from windlass.core.db import Database
from windlass.core.leaving import eraser
from windlass.core.leaving.claims import LeavingClaims, ObjectClaim, by_project
from windlass.core.leaving.tables import ERASING, PENDING, erasures, steps
from windlass.core.objects import ObjectInfo


class Objects:
    """An object store whose listing lasts longer than the lease."""

    def __init__(self, database: Database):
        self._database = database
        self.removed: list[str] = []
        self.is_taken = False

    async def list(self, prefix: str) -> AsyncIterator[ObjectInfo]:
        for number in range(3):
            yield ObjectInfo(key=f"{prefix}{number}", bytes=1, modified_at=datetime.now(UTC))
            if self.is_taken:
                async with self._database.begin() as connection:
                    taken = steps.update().values(lease_owner="another")
                    await connection.execute(taken)

    async def delete_prefix(self, prefix: str) -> None:
        self.removed.append(prefix)


@pytest.fixture
async def database(database_url: str) -> AsyncIterator[Database]:
    database = Database(database_url)
    async with database.begin() as connection:
        await connection.execute(
            erasures.insert().values(
                id="erasure_1",
                organization_id="org_1",
                project_id="proj_1",
                project_ids=["proj_1"],
                restores=[],
                state=ERASING,
                asked_by="user_1",
                asked_at=1,
                erase_at=1,
            )
        )
        step = {"id": "erasure_1/files", "erasure_id": "erasure_1", "service": "files"}
        await connection.execute(steps.insert().values(step))
    yield database
    await database.close()


@pytest.mark.parametrize("is_taken", [True, False])
async def test_a_long_listing_keeps_its_lease_or_stops(
    database: Database, monkeypatch: pytest.MonkeyPatch, is_taken: bool
) -> None:
    monkeypatch.setattr(eraser, "RENEWED_EVERY", 2)
    objects = Objects(database)
    objects.is_taken = is_taken
    claims = LeavingClaims("files", (), (ObjectClaim("files", by_project("files")),))
    assert await eraser.Eraser(database, cast(Any, objects), claims).once()
    async with database.autocommit() as connection:
        row = (await connection.execute(sa.select(steps))).one()
    if is_taken:
        assert (objects.removed, row.state, row.lease_owner) == ([], PENDING, "another")
    else:
        assert (objects.removed, row.state, row.objects) == (["files/proj_1/"], "done", 3)
