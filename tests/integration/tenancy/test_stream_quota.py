"""Quota of event streams over several processes: together they open what a tenant has, no more."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest
import sqlalchemy as sa
from tests.support.waiting import until

from windlass.core.config import QuotasSection
from windlass.core.db import Database
from windlass.core.db.wake import Wake
from windlass.core.errors import ResourceExhausted
from windlass.core.quotas import Quota, Quotas, set_bound
from windlass.jobs.transport import stream_quota
from windlass.jobs.transport.stream_quota import EventStreams, holders, streams


@pytest.fixture
async def database(database_url: str) -> AsyncIterator[Database]:
    database = Database(database_url, pool_size=8)
    yield database
    await database.close()


def processes(database: Database, number: int = 2) -> list[EventStreams]:
    """As many as there are replicas; each knows of the others by the rows alone."""
    quotas = Quotas(QuotasSection(event_streams=3))
    wake = Wake("postgresql://")
    return [EventStreams(database, quotas, wake) for _ in range(number)]


async def opened(stack: AsyncExitStack, process: EventStreams, project: str = "proj_a") -> bool:
    try:
        await stack.enter_async_context(process.one("org", project))
    except ResourceExhausted:
        return False
    return True


async def rows(database: Database) -> int:
    async with database.autocommit() as connection:
        found = await connection.execute(sa.select(sa.func.count()).select_from(streams))
        return int(found.scalar_one())


async def test_streams_of_two_processes_are_one_quota(database: Database) -> None:
    both = processes(database)
    async with AsyncExitStack() as stack:
        begun = await asyncio.gather(*(opened(stack, both[n % 2]) for n in range(10)))
        assert sum(begun) == 3
        assert await opened(stack, both[1], "proj_b"), "another project has its own"
        for process in both:
            with pytest.raises(ResourceExhausted, match="4 event streams at once; its quota is 3"):
                await stack.enter_async_context(process.one("org", "proj_a"))
    for process in both:
        await process.keep()
    assert await rows(database) == 0
    async with AsyncExitStack() as stack:
        assert await opened(stack, both[0]), "what has ended counts no more"


async def test_an_organization_has_a_quota_over_its_projects(database: Database) -> None:
    async with database.begin() as connection:
        await set_bound(connection, "org", Quota.EVENT_STREAMS, 2)
    both = processes(database)
    async with AsyncExitStack() as stack:
        projects = [f"proj_{n}" for n in range(4)]
        begun = [await opened(stack, both[n % 2], one) for n, one in enumerate(projects)]
        assert begun == [True, True, False, False]


async def test_streams_of_a_dead_process_count_until_its_row_runs_out(database: Database) -> None:
    dead, living = processes(database)
    async with AsyncExitStack() as stack:
        for _ in range(3):
            assert await opened(stack, dead)
        assert not await opened(stack, living)
        async with database.begin() as connection:
            # As if it had been silent for so long.
            await connection.execute(holders.update().values(expires_at=sa.func.now()))
        assert await opened(stack, living)
        # One that is only slow counts again once it renews, and what it has open is not ended.
        await dead.keep()
        assert not await opened(stack, living)


async def test_a_process_that_ends_makes_room_at_once(database: Database) -> None:
    ending, living = processes(database)
    async with AsyncExitStack() as stack:
        for _ in range(3):
            assert await opened(stack, ending)
        await ending.close()
        assert await opened(stack, living)


async def test_what_dead_processes_left_is_swept(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    dead, living = processes(database)
    async with AsyncExitStack() as stack:
        assert await opened(stack, dead)
        async with database.begin() as connection:
            await connection.execute(holders.update().values(expires_at=sa.text("'-infinity'")))
        assert await opened(stack, living)
        for _ in range(stream_quota.SWEEP_EVERY):
            await living.keep()
        assert await rows(database) == 1


async def test_an_end_is_kept_and_an_idle_process_asks_nothing(database: Database) -> None:
    (process,) = processes(database, 1)
    running = asyncio.create_task(process.run())
    try:
        async with AsyncExitStack() as stack:
            assert await opened(stack, process)
            assert await rows(database) == 1

        async def none_left() -> bool:
            return await rows(database) == 0

        await until(none_left)
        await database.close()
        assert await process.keep() is False, "it would have failed"
    finally:
        running.cancel()


async def test_a_stream_that_is_cancelled_while_it_begins_leaves_nothing(
    database: Database,
) -> None:
    (process,) = processes(database, 1)
    for moment in range(20):
        opening = asyncio.create_task(process.one("org", "proj_a").__aenter__())
        for _ in range(moment):
            await asyncio.sleep(0)
        opening.cancel()
        await asyncio.gather(opening, return_exceptions=True)
    await process.keep()
    assert await rows(database) == 0
