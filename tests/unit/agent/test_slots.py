"""Slots go by the order of asking, and none is lost."""

import asyncio

from tests.servers.patience import PATIENCE

from windlass_agent.executors.process.slots import Slots


async def test_places_go_in_the_order_of_asking() -> None:
    slots, order = Slots(1), []

    async def hold(name: str) -> None:
        await slots.acquire(name)
        order.append(name)

    tasks = [asyncio.create_task(hold(name)) for name in "abc"]
    await asyncio.sleep(0)
    assert [slots.position(name) for name in "abc"] == [0, 1, 2]
    for name in "abc":
        slots.release(name)
        await asyncio.sleep(0)
    await asyncio.gather(*tasks)
    assert order == ["a", "b", "c"]
    assert slots.used == 0


async def test_a_cancelled_wait_keeps_nothing() -> None:
    slots = Slots(1)
    await slots.acquire("a")
    waiting = asyncio.create_task(slots.acquire("b"))
    await asyncio.sleep(0)
    slots.release("a")
    # It has its place by now, and does not know yet.
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    async with asyncio.timeout(PATIENCE):
        await slots.acquire("c")
    assert slots.used == 1


async def test_what_is_adopted_counts_even_beyond_the_size() -> None:
    slots = Slots(1)
    slots.take("a")
    slots.take("b")
    waiting = asyncio.create_task(slots.acquire("c"))
    slots.release("a")
    await asyncio.sleep(0)
    assert not waiting.done()
    slots.release("b")
    async with asyncio.timeout(PATIENCE):
        await waiting
