"""Callers that come together share a call; nobody is forgotten."""

import asyncio
from collections.abc import Sequence

import pytest
from tests.support.waiting import PATIENCE

from windlass.core.db.coalescing import Coalescer


class Asked:
    """Answers a number by its double, once let go; notes the batches."""

    def __init__(self) -> None:
        self.batches: list[list[int]] = []
        self.go = asyncio.Event()

    async def __call__(self, numbers: Sequence[int]) -> list[int]:
        self.batches.append(list(numbers))
        await self.go.wait()
        if 13 in numbers:
            raise ValueError("thirteen")
        return [2 * number for number in numbers]


async def test_who_comes_while_a_call_is_under_way_joins_the_next() -> None:
    asked = Asked()
    double = Coalescer("double", asked, abreast=1)
    calls = [asyncio.create_task(double(number)) for number in range(5)]
    await asyncio.sleep(0)
    late = [asyncio.create_task(double(number)) for number in (7, 8)]
    await asyncio.sleep(0)
    asked.go.set()
    assert await asyncio.gather(*calls, *late) == [0, 2, 4, 6, 8, 14, 16]
    assert sum(len(batch) for batch in asked.batches) == 7
    assert len(asked.batches) == 2


async def test_who_asks_again_at_once_is_answered_too() -> None:
    """The worker has answered the last of those who waited, and its task is not over yet."""
    asked = Asked()
    asked.go.set()
    double = Coalescer("double", asked, abreast=1)
    async with asyncio.timeout(PATIENCE):
        for number in range(10):
            assert await double(number) == 2 * number


async def test_a_call_that_fails_fails_for_its_batch_alone() -> None:
    asked = Asked()
    double = Coalescer("double", asked, batch=2, abreast=1)
    calls = [asyncio.create_task(double(number)) for number in (1, 13, 3)]
    await asyncio.sleep(0)
    asked.go.set()
    answers = await asyncio.gather(*calls, return_exceptions=True)
    assert [type(one) for one in answers] == [ValueError, ValueError, int]
    await double.close()
    with pytest.raises(ValueError, match="thirteen"):
        await double(13)
