"""Engines that cannot be reached: left out, probed, and let back slowly."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial

import pytest
from tests.support.waiting import soon, until

from windlass.gateway.inference.engines import ejection
from windlass.gateway.inference.engines.ejection import FAILURES, FULL, Ejections
from windlass.gateway.inference.routes import EngineEndpoint

THERE = [EngineEndpoint(name, name, frozenset()) for name in "abc"]


class World:
    """Three engines, of which some can be reached."""

    def __init__(self) -> None:
        self.active = Counter[str]()
        self.reachable: set[str] = set()
        self.probes = Counter[str]()
        self.back = 0
        # Engines whose probes never end, and those whose probes fail as none should.
        self.hanging: set[str] = set()
        self.faulty: set[str] = set()
        self.ejections = Ejections(lambda address: self.active[address])

    def able(self) -> str:
        return "".join(one.address for one in self.ejections.able(THERE))

    def is_ejected(self, address: str) -> bool:
        return address in self.ejections._ejected

    def was_back(self, times: int) -> bool:
        return self.back == times

    async def reaches(self, address: str) -> bool:
        self.probes[address] += 1
        if address in self.hanging:
            await asyncio.Event().wait()
        if address in self.faulty:
            raise ValueError("a fault of ours")
        return address in self.reachable

    def _came_back(self) -> None:
        self.back += 1

    @asynccontextmanager
    async def probing(self) -> AsyncIterator[None]:
        task = asyncio.create_task(self.ejections.probe(self.reaches, self._came_back))
        try:
            yield
            assert not task.done()
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


@pytest.fixture(autouse=True)
def _fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ejection, "FIRST_SECONDS", 0.01)
    monkeypatch.setattr(ejection, "LONGEST_SECONDS", 0.02)


async def found(condition: Callable[[], bool]) -> None:
    async with soon(5):
        await until(condition)


async def test_what_failed_is_left_out_and_the_last_one_is_not() -> None:
    world = World()
    assert world.able() == "abc"
    world.ejections.failed("b")
    assert world.able() == "ac"
    for address in "ac":
        world.ejections.failed(address)
    # It is better to try than to refuse.
    assert world.able() == "abc"


async def test_an_engine_that_is_reached_again_comes_back_slowly() -> None:
    world = World()
    async with world.probing():
        world.ejections.failed("b")
        await found(lambda: world.probes["b"] > 2)
        assert (world.able(), world.back) == ("ac", 0)
        world.reachable.add("b")
        await found(lambda: world.back == 1)
        rooms = []
        while world.is_ejected("b"):
            # As many requests as it may have, and one of them is answered.
            while "b" in world.able() and world.active["b"] < FULL:
                world.active["b"] += 1
            rooms.append(world.active["b"])
            assert world.ejections.answered("b")
    assert rooms == [1, 2, 4, 8, 16]
    assert world.able() == "abc"


async def test_one_that_fails_again_is_left_out_again() -> None:
    world = World()
    world.reachable.add("b")
    async with world.probing():
        for times in range(1, 4):
            world.ejections.failed("b")
            # Those that were sent before say nothing new.
            world.ejections.failed("b")
            assert world.able() == "ac"
            await found(partial(world.was_back, times))
            assert world.able() == "abc"


async def test_one_that_fails_several_times_in_a_row_is_left_out() -> None:
    world = World()
    world.reachable.add("b")
    for _ in range(3):
        for _ in range(FAILURES - 1):
            world.ejections.erred("b")
        assert world.able() == "abc"
        world.ejections.succeeded("b")
    async with world.probing():
        for times in range(1, 4):
            # As many once it is back: one tenant's requests may be at fault.
            for _ in range(FAILURES - 1):
                world.ejections.erred("b")
            assert world.able() == "abc"
            world.ejections.erred("b")
            # Those that were sent before say nothing of what is back.
            for _ in range(FAILURES - 1):
                world.ejections.erred("b")
            assert world.able() == "ac"
            await found(partial(world.was_back, times))
            assert world.able() == "abc"


async def test_an_answer_to_anybody_ends_a_row_of_failures_of_what_is_back() -> None:
    world = World()
    world.reachable.add("b")
    async with world.probing():
        world.ejections.failed("b")
        await found(partial(world.was_back, 1))
        while world.is_ejected("b"):
            for _ in range(FAILURES - 1):
                world.ejections.erred("b")
            assert world.ejections.answered("b")
            world.ejections.succeeded("b")
    assert world.able() == "abc"


async def test_one_that_breaks_off_once_it_is_back_is_left_out_at_once() -> None:
    world = World()
    world.reachable.add("b")
    for _ in range(FAILURES):
        world.ejections.erred("b", broke_off=True)
    async with world.probing():
        for times in range(1, 4):
            assert world.able() == "ac"
            await found(partial(world.was_back, times))
            assert world.able() == "abc"
            world.ejections.erred("b", broke_off=True)


async def test_one_that_gets_no_requests_is_like_the_others_after_a_while(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ejection, "BACK_SECONDS", 0.05)
    world = World()
    world.reachable.add("b")
    async with world.probing():
        world.ejections.failed("b")
        await found(lambda: world.probes["b"] > 0 and not world.is_ejected("b"))
    assert world.back == 2


async def test_what_is_away_for_long_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ejection, "FORGOTTEN_SECONDS", 0.05)
    world = World()
    async with world.probing():
        world.ejections.failed("b")
        await found(lambda: not world.is_ejected("b"))
        probes = world.probes["b"]
        monkeypatch.setattr(ejection, "FORGOTTEN_SECONDS", 3600.0)
        world.ejections.failed("c")
        await found(lambda: world.probes["c"] > 1)
        assert world.probes["b"] == probes


async def test_probes_do_not_hold_each_other_up_and_a_fault_ends_none() -> None:
    world = World()
    world.hanging.add("a")
    world.faulty.add("c")
    world.reachable.add("b")
    async with world.probing():
        for address in "acb":
            world.ejections.failed(address)
        await found(lambda: world.back == 1 and world.probes["c"] > 1)
        assert world.able() == "b"
