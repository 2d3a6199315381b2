"""An exporter whose lease another process takes counts nothing, and leaves nothing behind."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from tests.support.keepers.object_keys import FixedKeys

from windlass.core.db import Database
from windlass.core.errors import PermissionDenied
from windlass.core.exporting import lines
from windlass.core.exporting.exporter import TRIES_FOR_KEYS, Exporter
from windlass.core.exporting.tables import COLLECTING, export_parts, export_steps, exports
from windlass.core.leaving.claims import LeavingClaims, ObjectClaim, by_project
from windlass.core.objects import FilesystemStore, SealedStore, StoredObject
from windlass.core.rpc.auth import Principal
from windlass.policy import ORGANIZATION_OWNER, permissions_of
from windlass.usage.store import records
from windlass.users.exporting.access import ExportAccess
from windlass.users.tables import members


@pytest.fixture
async def database(database_url: str) -> AsyncIterator[Database]:
    database = Database(database_url)
    async with database.begin() as connection:
        await connection.execute(
            exports.insert().values(
                id="export_1",
                organization_id="org_1",
                user_id="",
                project_ids=["proj_1"],
                state=COLLECTING,
                asked_by="ann",
                asked_at=1,
                expires_at=2**40,
            )
        )
        step = {"id": "export_1/files", "export_id": "export_1", "service": "files"}
        await connection.execute(export_steps.insert().values(step))
    yield database
    await database.close()


class Store(FilesystemStore):
    """An object store that is so slow that another process takes the lease meanwhile."""

    def __init__(self, database: Database, folder: Path):
        super().__init__(folder, public_url="http://127.0.0.1", secret=b"s" * 32)
        self._database = database
        self.after_put: list[sa.Update] = []

    async def put(self, key: str, *arguments: Any, **options: Any) -> StoredObject:
        stored = await super().put(key, *arguments, **options)
        for statement in self.after_put:
            async with self._database.begin() as connection:
                await connection.execute(statement)
        return stored


async def _chunks() -> AsyncIterator[bytes]:
    yield b"content"


@pytest.mark.parametrize(
    "meanwhile",
    [
        export_steps.update().values(lease_owner="another"),
        exports.update().values(expires_at=0),
        None,
    ],
    ids=["taken over", "ended", "still held"],
)
async def test_what_comes_too_late_is_removed(
    database: Database, tmp_path: Path, meanwhile: sa.Update | None
) -> None:
    store = Store(database, tmp_path / "objects")
    await store.put("files/proj_1/a", _chunks())
    store.after_put = [] if meanwhile is None else [meanwhile]
    claims = LeavingClaims("files", (), (ObjectClaim("files", by_project("files")),))
    assert await Exporter(database, store, claims).once()
    async with database.autocommit() as connection:
        parts = (await connection.execute(sa.select(export_parts))).all()
        (step,) = (await connection.execute(sa.select(export_steps))).all()
    copies = [info.key async for info in store.list("exports/")]
    assert copies == [part.object_key for part in parts]
    if meanwhile is None:
        assert [part.name for part in parts] == ["files/objects/files/proj_1/a"]
        assert (step.state, step.objects, step.bytes) == ("done", 1, 7)
    else:
        assert (copies, step.state, step.objects) == ([], "pending", 0)
        # Nobody waits for a lease of who writes nothing any more.
        assert step.lease_owner in ("another", None)
    await store.close()


async def test_copies_of_sealed_objects_are_sealed_and_lost_ones_left_out(
    database: Database, tmp_path: Path
) -> None:
    under, keys = Store(database, tmp_path / "objects"), FixedKeys("proj_1")
    store = SealedStore(under, keys, public_url="http://127.0.0.1", secret=b"s" * 32)
    for name in "ab":
        await store.put(f"files/proj_1/{name}", _chunks())
    damaged = b"".join([part async for part in under.get("files/proj_1/a")])
    await under.put("files/proj_1/b", aiter_of(damaged))
    await under.put("files/proj_1/c", aiter_of(damaged[:-8]))
    claims = LeavingClaims("files", (), (ObjectClaim("files", by_project("files")),))
    # Its key comes back, and nothing of the export is lost by it; two objects open nowhere.
    keys.away = True
    exporter = Exporter(database, store, claims)
    assert await exporter.once()
    assert (await _step(database)).message == "SealingKeyUnavailable"
    keys.away = False
    assert await exporter.once()
    (copy,) = [info.key async for info in store.list("exports/")]
    assert copy.startswith("exports/org_1/export_1/files/proj_1/part_")
    assert b"content" not in b"".join([part async for part in under.get(copy)])
    assert b"".join([part async for part in store.get(copy)]) == b"content"
    done = await _step(database)
    assert (done.state, done.objects, done.bytes) == ("done", 1, 7)
    assert done.message.startswith("2 objects are left out")
    await store.close()


async def test_an_export_ends_without_what_a_destroyed_key_seals(
    database: Database, tmp_path: Path
) -> None:
    under, keys = Store(database, tmp_path / "objects"), FixedKeys("proj_1")
    store = SealedStore(under, keys, public_url="http://127.0.0.1", secret=b"s" * 32)
    await store.put("files/proj_1/a", _chunks())
    keys.away = True
    claims = LeavingClaims("files", (), (ObjectClaim("files", by_project("files")),))
    exporter = Exporter(database, store, claims)
    for _ in range(TRIES_FOR_KEYS):
        assert await exporter.once()
        assert (await _step(database)).state == "pending"
    assert await exporter.once()
    done = await _step(database)
    assert (done.state, done.objects) == ("done", 0)
    assert done.message.startswith("1 objects are left out")
    await store.close()


async def _step(database: Database) -> Any:
    """Returns the step, which may be tried at once."""
    async with database.begin() as connection:
        await connection.execute(export_steps.update().values(not_before=0))
        return (await connection.execute(sa.select(export_steps))).one()


async def aiter_of(content: bytes) -> AsyncIterator[bytes]:
    yield content


async def test_pages_of_a_table_have_each_row_once(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lines, "PAGE_BYTES", 300)
    names = ("at_ms", "kind", "input_tokens", "output_tokens", "duration_ms",
             "time_to_first_token_ms", "status")  # fmt: skip
    texts = dict.fromkeys(("project_id", "user_id", "key_id", "model"), "x")
    made = [
        {"id": f"use-{number}", "organization_id": f"org_{number % 2}", **texts}
        | dict.fromkeys(names, 1)
        for number in range(240)
    ]
    async with database.begin() as connection:
        await connection.execute(records.insert(), made)
    columns = [records.c.model, records.c.id]
    read = lines.TableLines(database, columns, records.c.organization_id == "org_1")
    pages = [page async for page in read]
    found = [json.loads(line)["id"] for page in pages for line in page.splitlines()]
    assert sorted(found) == sorted(one["id"] for one in made if one["organization_id"] == "org_1")
    assert (read.rows, len(pages) > 5) == (120, True)


async def test_a_weakened_session_and_a_stranger_export_nothing(database: Database) -> None:
    access, roles = ExportAccess(database), (ORGANIZATION_OWNER,)
    row = {"project_id": "", "role": ORGANIZATION_OWNER, "created_at": 1}
    async with database.begin() as connection:
        member = {"organization_id": "org_1", "user_id": "ann", **row}
        await connection.execute(members.insert().values(member))
    powers = permissions_of(roles)
    owner = Principal("org_1", user_id="ann", roles=roles, permissions=powers)
    assert await access.subjects(owner) == ["", "ann"]
    weak = Principal("org_1", user_id="ann", roles=roles, permissions=powers, is_weakened=True)
    for asked in (access.owner, access.person, access.subjects):
        with pytest.raises(PermissionDenied, match="Sign in anew"):
            await asked(weak)
    # Nobody's id is no organization's.
    nobody = Principal("org_1", permissions=powers - {"projects.write"})
    with pytest.raises(PermissionDenied):
        await access.subjects(nobody)
