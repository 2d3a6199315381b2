"""Turns of engines that start: few at once, in order, and none held for ever."""

import asyncio
import operator
from collections.abc import Callable
from functools import partial

from tests.support.waiting import PATIENCE, until

from windlass_agent.executors.process.engines.start_turns import StartTurns


async def test_engines_start_one_after_the_other_in_order() -> None:
    turns, begun, waiting = StartTurns(1), list[int](), list[int]()
    ready = [asyncio.Event() for _ in range(3)]

    async def start(number: int) -> None:
        async with turns.turn(lambda: waiting.append(number)):
            begun.append(number)
            await ready[number].wait()

    async with asyncio.TaskGroup() as group:
        for number in range(3):
            group.create_task(start(number))
        for number in range(3):
            await until(partial(operator.contains, begun, number))
            assert begun[-1] == number
            ready[number].set()
    assert (begun, waiting) == ([0, 1, 2], [1, 2])


async def test_a_start_that_takes_long_lets_the_next_begin_once() -> None:
    turns, begun = StartTurns(1, seconds=0.01), list[int]()
    ends = asyncio.Event()

    async def start(number: int) -> None:
        async with turns.turn(lambda: None):
            begun.append(number)
            await ends.wait()

    async with asyncio.TaskGroup() as group:
        group.create_task(start(0))
        group.create_task(start(1))
        await until(lambda: begun == [0, 1])
        ends.set()
    # Neither gave back more than it had.
    waiting = list[int]()
    async with turns.turn(lambda: waiting.append(0)), asyncio.TaskGroup() as group:
        group.create_task(_take(turns, lambda: waiting.append(1)))
        await until(lambda: waiting)
    assert waiting == [1]


async def test_a_start_that_is_given_up_gives_its_turn_back() -> None:
    turns = StartTurns(1)
    async with turns.turn(lambda: None):
        waits = asyncio.create_task(_take(turns))
        await asyncio.sleep(0)
        waits.cancel()
    await asyncio.wait_for(_take(turns), PATIENCE)


async def _take(turns: StartTurns, waiting: Callable[[], None] = lambda: None) -> None:
    async with turns.turn(waiting):
        pass
