"""Old usage records become sums by the hour, and every answer stays what it was."""

import asyncio
from collections.abc import AsyncIterator

import pytest
import sqlalchemy as sa

from windlass.core.db import Database
from windlass.usage.domain import Query, UsageRecord
from windlass.usage.rolling import roll_up
from windlass.usage.store import HOUR_MS, UsageStore, hours, records

ROWS = 3000
HOURS = 30
END_MS = HOURS * HOUR_MS


@pytest.fixture
async def database(database_url: str) -> AsyncIterator[Database]:
    database = Database(database_url, pool_size=8)
    yield database
    await database.close()


@pytest.fixture
async def store(database: Database) -> UsageStore:
    store = UsageStore(database)
    await store.append(
        UsageRecord(
            id=f"r{n}",
            at_ms=n * END_MS // ROWS,
            organization_id="org" if n % 5 else "other",
            project_id=f"p{n % 3}",
            user_id="",
            key_id=f"k{n % 2}",
            model="m",
            kind=1,
            input_tokens=n,
            output_tokens=1,
            duration_ms=1,
            time_to_first_token_ms=1,
            status=200,
            input_cached_tokens=n // 2,
            output_reasoning_tokens=n % 2,
            estimated=n % 7 == 0,
        )
        for n in range(ROWS)
    )
    return store


async def asked(store: UsageStore, *, width: int = 3600) -> list[list[tuple[object, ...]]]:
    """The answers to three questions, the second of one project and the third of another tenant."""
    questions: list[tuple[str, dict[str, tuple[str, ...]]]] = [
        ("org", {}), ("org", {"project_id": ("p1",)}), ("other", {}),
    ]  # fmt: skip
    answers = []
    for organization, filters in questions:
        query = Query(organization, 0, END_MS // 1000, width, 10_000, ("project_id",), filters)
        found = await store.query(query)
        answers.append([tuple(row) for start in sorted(found) for row in found[start]])
    return answers


async def left(database: Database) -> tuple[int, int]:
    async with database.autocommit() as connection:
        raw = await connection.execute(sa.select(sa.func.count()).select_from(records))
        summed = await connection.execute(sa.select(sa.func.sum(hours.c.requests)))
        return raw.scalar_one(), int(summed.scalar_one() or 0)


async def test_answers_stay_the_same_while_records_become_sums(
    database: Database, store: UsageStore
) -> None:
    before = {width: await asked(store, width=width) for width in (3600, 86400)}
    cutoff = END_MS // 2 + 1234
    while await roll_up(database, before_ms=cutoff, batch=400):
        assert sum(await left(database)) == ROWS
        for width, answers in before.items():
            assert await asked(store, width=width) == answers
    raw, summed = await left(database)
    assert (raw, summed) == (ROWS // 2, ROWS // 2), "whole hours alone are summed"
    assert not await roll_up(database, before_ms=cutoff), "and once"
    assert await asked(store) == before[3600]


async def test_several_processes_and_one_that_dies_move_each_record_once(
    database: Database, store: UsageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = await asked(store)

    class Killed(Exception):
        pass

    async def die() -> None:
        async with database.begin() as connection:
            begin = database.begin

            class Same:
                async def __aenter__(self) -> object:
                    return connection

                async def __aexit__(self, *_: object) -> None:
                    raise Killed

            monkeypatch.setattr(database, "begin", Same)
            try:
                await roll_up(database, before_ms=END_MS, batch=400)
            finally:
                monkeypatch.setattr(database, "begin", begin)

    with pytest.raises(Killed):
        await die()
    assert await left(database) == (ROWS, 0), "what the dead one did is undone"
    other = Database(database.url, pool_size=8)
    try:
        while (await left(database))[0]:
            await asyncio.gather(
                *(roll_up(each, before_ms=END_MS, batch=200) for each in (database, other) * 3)
            )
    finally:
        await other.close()
    assert await left(database) == (0, ROWS)
    assert await asked(store) == before
