"""Nobody's prompt is continued by another, whatever order requests come and go in."""

import asyncio
from contextlib import AsyncExitStack

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windlass.inference_api.errors import ApiError
from windlass_agent.engines.llamacpp.slots import ServerSlots

SALTS = st.sampled_from(["a", "b", "c"])


@given(st.integers(1, 3), st.lists(st.tuples(SALTS, st.integers(0, 2)), max_size=30))
def test_a_prompt_is_continued_only_after_one_of_the_same_salt(
    count: int, steps: list[tuple[str, int]]
) -> None:
    async def go() -> None:
        slots, last = ServerSlots(count, max_waiting=0), dict[int, str]()
        held: list[AsyncExitStack] = []
        for salt, keep in steps:
            while len(held) >= min(count, keep + 1):
                await held.pop(0).aclose()
            stack = AsyncExitStack()
            number, continued = await stack.enter_async_context(slots.take(salt))
            assert continued == (last.get(number) == salt)
            last[number] = salt
            held.append(stack)
            assert slots.open == len(held)
        for stack in held:
            await stack.aclose()
        assert slots.open == 0

    asyncio.run(go())


async def test_a_salt_comes_back_to_its_own_place() -> None:
    slots = ServerSlots(2, max_waiting=0)
    for salt in ("a", "b"):
        async with slots.take(salt):
            pass
    for salt in ("a", "b", "b", "a"):
        async with slots.take(salt) as (_, continued):
            assert continued


async def test_requests_wait_in_turn_and_too_many_are_refused() -> None:
    slots, order = ServerSlots(1, max_waiting=2), list[str]()

    async def use(salt: str) -> None:
        async with slots.take(salt):
            order.append(salt)

    async with slots.take("first"):
        waiting = [asyncio.create_task(use(salt)) for salt in ("second", "third")]
        await asyncio.sleep(0)
        with pytest.raises(ApiError) as refused:
            await use("fourth")
        assert refused.value.status == 503
        waiting[0].cancel()
        await asyncio.gather(waiting[0], return_exceptions=True)
        assert slots.open == 2
    await waiting[1]
    assert (order, slots.open) == (["third"], 0)
