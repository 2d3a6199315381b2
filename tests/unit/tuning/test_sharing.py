"""Work that callers share: once for all, two at a time for a project, and never for ever."""

import asyncio

import pytest

from windlass.core.errors import Unavailable
from windlass.tuning.transfer.sharing import SharedWork


async def test_whoever_asks_for_the_same_waits_for_the_same() -> None:
    shared, done, go = SharedWork(), [], asyncio.Event()

    async def work() -> None:
        await go.wait()
        done.append(1)

    asking = [asyncio.create_task(shared.done("p", "key", work)) for _ in range(3)]
    await asyncio.sleep(0)
    go.set()
    await asyncio.gather(*asking)
    assert done == [1]


async def test_what_takes_long_goes_on_and_is_asked_for_again() -> None:
    shared, done, go = SharedWork(wait_seconds=0), [], asyncio.Event()

    async def work() -> None:
        await go.wait()
        done.append(1)

    for _ in range(2):
        with pytest.raises(Unavailable):
            await shared.done("p", "key", work)
    go.set()
    while not done:
        await asyncio.sleep(0)
    assert done == [1]


async def test_a_project_leaves_room_for_others() -> None:
    shared, go = SharedWork(wait_seconds=0), asyncio.Event()

    async def work() -> None:
        await go.wait()

    for key in ("a", "b", "c"):
        with pytest.raises(Unavailable):
            await shared.done("greedy", key, work)
    assert "c" not in shared._tasks
    with pytest.raises(Unavailable):
        await shared.done("other", "d", work)
    assert "d" in shared._tasks
    await shared.close()
    assert not shared._tasks
    assert not shared._busy


async def test_what_fails_says_so_and_begins_anew() -> None:
    shared, calls = SharedWork(), []

    async def work() -> None:
        calls.append(1)
        raise ValueError("no")

    for _ in range(2):
        with pytest.raises(ValueError, match="no"):
            await shared.done("p", "key", work)
    assert calls == [1, 1]
