"""An organization with a row in every table leaves none of what it named, and takes no other's."""

from collections.abc import AsyncIterator
from typing import Any, cast

import pytest
import sqlalchemy as sa
from tests.support.factories.tenant_rows import RowTenant, tenant_claims

from windlass.core.db import Database
from windlass.core.leaving.claims import Fate
from windlass.core.leaving.eraser import Eraser, ErasurePart
from windlass.core.leaving.tables import DONE, ERASING, erasures, steps
from windlass.migrations.tables import load_claims

CLAIMS = list(tenant_claims())


class NoObjects:
    """An object store that has nothing."""

    async def count(self, prefix: str) -> tuple[int, int]:
        return 0, 0


@pytest.fixture
async def database(database_url: str) -> AsyncIterator[Database]:
    database = Database(database_url)
    yield database
    await database.close()


async def rows(database: Database, text: str) -> dict[str, list[str]]:
    """The rows that have a text anywhere, by table; texts that are bytes too."""
    found = {}
    async with database.autocommit() as connection:
        for one in CLAIMS:
            name = one.table.name
            query = sa.text(
                f"SELECT row::text FROM {name} AS row"
                " WHERE row::text LIKE :text OR row::text LIKE :bytes ORDER BY 1"
            )
            asked = {"text": f"%{text}%", "bytes": f"%{text.encode().hex()}%"}
            found[name] = list((await connection.execute(query, asked)).scalars())
    return found


async def fill(database: Database, *tenants: RowTenant) -> None:
    async with database.begin() as connection:
        for tenant in tenants:
            # Claims begin with what refers to others.
            for one in reversed(CLAIMS):
                await connection.execute(one.table.insert().values(tenant.row(one.table)))


async def erase(database: Database, tenant: RowTenant) -> None:
    """Runs every service's own part, as its process does."""
    scope, services = tenant.scope, load_claims()
    leaving = {
        "id": "erasure",
        "organization_id": scope.organization_id,
        "project_id": "",
        "project_ids": list(scope.project_ids),
        "restores": [],
        "state": ERASING,
        "asked_by": "somebody",
        "asked_at": 1,
        "erase_at": 1,
    }
    async with database.begin() as connection:
        await connection.execute(erasures.insert().values(leaving))
        for one in services:
            step = {"id": one.service, "erasure_id": "erasure", "service": one.service}
            await connection.execute(steps.insert().values(step))
    for one in services:
        assert await Eraser(
            database, cast(Any, NoObjects()), {one.service: ErasurePart(one)}
        ).once()
    async with database.autocommit() as connection:
        states = await connection.execute(sa.select(steps.c.service, steps.c.state))
        assert {state for _, state in states} == {DONE}


async def test_nothing_is_left_in_any_table(database: Database) -> None:
    tenant, other = RowTenant(1), RowTenant(2)
    await fill(database, tenant, other)
    async with database.autocommit() as connection:
        for one in CLAIMS:
            where = one.where(tenant.scope) if one.where else None
            assert where is not None, one.table.name
            query = sa.select(sa.func.count()).select_from(one.table).where(where)
            assert await connection.scalar(query) == 1, f"{one.table.name} has no row of it"
    theirs = await rows(database, other.ids)
    await erase(database, tenant)
    left = await rows(database, tenant.ids)
    kept = {one.table.name for one in CLAIMS if one.fate is Fate.IDS}
    assert {name for name, found in left.items() if found} == kept
    assert await rows(database, other.ids) == theirs
    async with database.autocommit() as connection:
        for one in CLAIMS:
            named = [one.table.c[name] for name in one.values]
            found = (await connection.execute(sa.select(*named))).all() if named else []
            assert not [row for row in found if tenant.mark in str(row)], one.table.name
