"""The rows of versions: which checkpoint is published, who may follow, and what leads there."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
import sqlalchemy as sa

from windlass.core.db import Database
from windlass.tuning.domain import Reader
from windlass.tuning.publishing.store import VersionStore, WrittenVersion, changed_runs
from windlass.tuning.storage.tables import checkpoints, runs

OWNER, SIBLING, FOREIGN = Reader("org", "mine"), Reader("org", "sibling"), Reader("other", "theirs")
TENANT: dict[str, Any] = {"organization_id": "org", "project_id": "mine"}


@pytest.fixture
async def database(database_url: str) -> AsyncIterator[Database]:
    one = Database(database_url, pool_size=2)
    run = TENANT | {
        "user_id": "u", "session_id": "s", "base_model": "toy", "settings": {}, "is_full": True,
        "user_metadata": {}, "created_at": 1, "last_request_at": 1,
    }  # fmt: skip
    async with one.begin() as connection:
        await connection.execute(runs.insert().values(id="run", **run))
        await connection.execute(runs.insert().values(id="lora", **run | {"is_full": False}))
    yield one
    await one.close()


async def save(database: Database, name: str, place: int, **more: Any) -> None:
    row = TENANT | {
        "id": f"ckpt-{name}", "run_id": "run", "base_model": "toy", "settings": {}, "name": name,
        "is_for_sampler": True, "user_metadata": {}, "state": "ready", "place": place,
        "created_at": place,
    }  # fmt: skip
    async with database.begin() as connection:
        await connection.execute(checkpoints.insert().values(row | more))
        await connection.execute(runs.update().values(places=runs.c.places + 1))


async def change(database: Database, name: str, **values: Any) -> None:
    async with database.begin() as connection:
        await connection.execute(
            checkpoints.update().where(checkpoints.c.name == name).values(values)
        )


async def publish(store: VersionStore, parent: int | None) -> tuple[int, str]:
    """Writes the version that is due; returns its number and its checkpoint."""
    await store.begin_newest()
    token, row = await store.claim()
    assert row is not None
    facts = WrittenVersion(
        parent=parent, base_weights="b", size=1, sha256="", manifest_size=1, manifest_sha256=""
    )
    assert await store.written(row.id, token, facts)
    return row.version, row.checkpoint_id


async def followed(store: VersionStore, reader: Reader) -> int:
    row = await store.newest(reader, "run")
    return row.version if row is not None and row.state == "ready" else 0


async def test_the_newest_is_published_once_and_numbers_are_never_given_twice(
    database: Database,
) -> None:
    store = VersionStore(database)
    assert not await store.begin_newest()
    await save(database, "one", 1)
    await save(database, "two", 2)
    # What else a run saves is no version: states, what is for other programs, and adapters.
    await save(database, "state", 8, is_for_sampler=False)
    await save(database, "external", 9, is_external=True)
    await save(database, "adapter", 3, run_id="lora")
    assert await publish(store, 0) == (1, "ckpt-two")
    assert not await store.begin_newest()
    await save(database, "three", 3)
    assert await publish(store, 1) == (2, "ckpt-three")
    assert [one.version for one in await store.chain("run", 2)] == [1, 2]
    # Nobody goes back to what is older.
    await change(database, "three", state="deleting")
    await save(database, "late", 1)
    assert not await store.begin_newest()
    # What is lost is published again, under another number.
    await save(database, "four", 4)
    assert await publish(store, None) == (3, "ckpt-four")
    await store.forget("run")
    assert await store.chain("run", 3) == ()
    assert await publish(store, None) == (4, "ckpt-four")
    assert [one.version for one in await store.chain("run", 4)] == [4]


async def test_a_version_is_followed_by_who_may_read_its_checkpoint(database: Database) -> None:
    store = VersionStore(database)
    await save(database, "one", 1)
    await publish(store, 0)
    readers = (OWNER, SIBLING, FOREIGN)
    assert [await followed(store, one) for one in readers] == [1, 0, 0]
    assert [await store.is_known(one, "run") for one in readers] == [True, False, False]
    assert not await store.is_known(OWNER, "lora")
    await change(database, "one", is_published=True)
    assert [await followed(store, one) for one in readers] == [1, 1, 0]
    assert [await store.is_known(one, "run") for one in readers] == [True, True, False]
    await save(database, "two", 2)
    await publish(store, 1)
    assert [await followed(store, one) for one in readers] == [2, 1, 0]
    await change(database, "one", is_published=False)
    assert [await followed(store, one) for one in readers] == [2, 0, 0]
    await change(database, "two", expires_at=1)
    assert [await followed(store, one) for one in readers] == [1, 0, 0]
    [kept] = await store.kept_runs()
    assert (kept.run_id, kept.offered) == ("run", True)
    await change(database, "one", state="deleting")
    [kept] = await store.kept_runs()
    assert kept.offered is False


async def test_a_version_is_written_by_one_and_only_while_it_holds_the_lease(
    database: Database,
) -> None:
    store = VersionStore(database)
    await save(database, "one", 1)
    await store.begin_newest()
    token, row = await store.claim()
    assert row is not None
    assert (await store.claim())[1] is None
    assert await store.renew(row.id, token)
    assert not await store.renew(row.id, "another")
    await store.postpone(row.id, token, "The disk is full.")
    waiting = await store.newest(OWNER, "run")
    assert waiting is not None
    assert (waiting.state, waiting.message) == ("writing", "The disk is full.")
    token, row = await store.claim()
    assert row is not None
    await store.refuse(row.id, token, "It is quantized.")
    refused = await store.newest(OWNER, "run")
    assert refused is not None
    assert (refused.state, refused.message) == ("refused", "It is quantized.")
    assert not await store.begin_newest()


async def test_what_newer_whole_versions_do_without_is_superseded(database: Database) -> None:
    store = VersionStore(database)
    for number, parent in enumerate((0, 1, None, 3, None, 5), 1):
        await save(database, str(number), number)
        await publish(store, parent)
    assert [one.version for one in await store.superseded("run")] == [1, 2]


HISTORY = (
    "INSERT INTO tuning_runs (id, organization_id, project_id, user_id, session_id, base_model,"
    " settings, is_full, user_metadata, places, published_places, created_at, last_request_at)"
    " SELECT 'old-' || n, 'org', 'mine', 'u', 's', 'toy', '{}', true, '{}', 9, 9, 1, n"
    " FROM generate_series(1, 5000) n",
    "INSERT INTO tuning_checkpoints (id, organization_id, project_id, run_id, base_model, settings,"
    " name, is_for_sampler, user_metadata, state, place, created_at)"
    " SELECT run || '-' || n, 'org', 'mine', run, 'toy', '{}', 'v' || n, true, '{}', 'ready', n, 1"
    " FROM generate_series(1, 4) n, (SELECT id AS run FROM tuning_runs WHERE is_full) known",
    "ANALYZE tuning_runs, tuning_checkpoints, tuning_versions",
)


async def test_a_look_for_the_newest_reads_no_history(database: Database) -> None:
    async with database.begin() as connection:
        for statement in HISTORY:
            await connection.execute(sa.text(statement))
    await save(database, "newest", 5)
    async with database.begin() as connection:
        # The past runs are looked at no more.
        await connection.execute(
            runs.update().where(runs.c.id != "run").values(published_places=runs.c.places)
        )
        text = changed_runs().compile(
            dialect=connection.dialect, compile_kwargs={"literal_binds": True}
        )
        explained = await connection.execute(sa.text(f"EXPLAIN (ANALYZE, FORMAT JSON) {text}"))
        read = rows_read(explained.scalar_one()[0]["Plan"])
    assert read <= 4, "the run and its newest checkpoint"
    store = VersionStore(database)
    assert await publish(store, 0) == (1, "ckpt-newest")
    async with database.begin() as connection:
        assert not (await connection.execute(changed_runs())).all()


def rows_read(plan: dict[str, Any]) -> int:
    """The rows of tables that a plan read."""
    rows = sum(map(rows_read, plan.get("Plans", ())))
    if "Relation Name" in plan:
        kept, thrown = plan["Actual Rows"], plan.get("Rows Removed by Filter", 0)
        rows += int((kept + thrown) * plan["Actual Loops"])
    return rows
