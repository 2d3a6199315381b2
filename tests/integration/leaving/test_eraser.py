"""An eraser whose lease another process takes removes and counts nothing more."""

from collections.abc import AsyncIterator
from datetime import datetime
from typing import Any, cast

import pytest
import sqlalchemy as sa
from tests.support.factories.tenant_rows import RowTenant
from tests.support.waiting import until

from windlass.core.db import Database
from windlass.core.leaving import eraser
from windlass.core.leaving.claims import LeavingClaims, ObjectClaim, Scope, by_project, erased
from windlass.core.leaving.tables import ERASING, PENDING, erasures, steps
from windlass.models.tables import fetches


class Objects:
    """An object store whose counting lasts longer than the lease."""

    def __init__(self, database: Database):
        self._database = database
        self.removed: list[str] = []
        self.is_taken = False

    async def count(self, prefix: str) -> tuple[int, int]:
        before = await self._lease()
        if self.is_taken:
            async with self._database.begin() as connection:
                await connection.execute(steps.update().values(lease_owner="another"))
        else:
            await until(self._lease, holds=lambda lease: lease > before)
        return 3, 3

    async def delete_prefix(self, prefix: str) -> None:
        self.removed.append(prefix)

    async def _lease(self) -> datetime:
        async with self._database.autocommit() as connection:
            found: datetime = (
                await connection.execute(sa.select(steps.c.lease_until))
            ).scalar_one()
        return found


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
async def test_a_long_count_keeps_its_lease_or_stops(
    database: Database, monkeypatch: pytest.MonkeyPatch, is_taken: bool
) -> None:
    monkeypatch.setattr(eraser, "RENEW_SECONDS", 0.02)
    objects = Objects(database)
    objects.is_taken = is_taken
    claims = LeavingClaims("files", (), (ObjectClaim("files", by_project("files")),))
    assert await eraser.Eraser(
        database, cast(Any, objects), {"files": eraser.ErasurePart(claims)}
    ).once()
    async with database.autocommit() as connection:
        row = (await connection.execute(sa.select(steps))).one()
    if is_taken:
        assert (objects.removed, row.state, row.lease_owner) == ([], PENDING, "another")
    else:
        assert (objects.removed, row.state, row.objects) == (["files/proj_1/"], "done", 3)


@pytest.mark.parametrize("is_taken", [True, False])
async def test_rows_are_erased_with_their_count_and_only_under_the_lease(
    database: Database, monkeypatch: pytest.MonkeyPatch, is_taken: bool
) -> None:
    monkeypatch.setattr(eraser, "ROWS", 2)
    monkeypatch.setattr(eraser, "PAUSE", 0)
    claims = LeavingClaims("files", (erased(fetches),), ())
    row = RowTenant(1).row(fetches) | {"organization_id": "org_1", "project_id": "proj_1"}
    async with database.begin() as connection:
        await connection.execute(fetches.insert(), [row | {"id": f"fetch_{n}"} for n in range(5)])

    async def prepare(_: Scope) -> str:
        if is_taken:
            async with database.begin() as connection:
                await connection.execute(steps.update().values(lease_owner="another"))
        return ""

    part = eraser.ErasurePart(claims, prepare)
    assert await eraser.Eraser(database, cast(Any, None), {"files": part}).once()
    async with database.autocommit() as connection:
        step = (await connection.execute(sa.select(steps))).one()
        left = await connection.scalar(sa.select(sa.func.count()).select_from(fetches))
    if is_taken:
        assert (left, step.rows, step.state, step.lease_owner) == (5, {}, PENDING, "another")
    else:
        assert (left, step.rows, step.state) == (0, {"models_fetches": 5}, "done")


async def test_a_batch_does_not_wait_for_the_disk(database: Database) -> None:
    row = RowTenant(1).row(fetches) | {"project_id": "proj_1"}
    async with database.begin() as connection:
        await connection.execute(steps.update().values(lease_owner="me"))
        await connection.execute(fetches.insert().values(row))
        step = (await connection.execute(sa.select(steps))).one()
    batch = eraser._Step(database, step, "me").batch_of(
        erased(fetches), fetches.c.project_id == "proj_1"
    )
    async with database.begin() as connection:
        # The server of the tests has it off for everybody.
        await connection.execute(sa.text("SET LOCAL synchronous_commit = on"))
        assert await connection.scalar(batch) == 1
        assert await connection.scalar(sa.text("SHOW synchronous_commit")) == "off"
