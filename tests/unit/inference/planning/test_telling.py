"""Clusters are told of engines that changed: wakes first, several at once, each on its own."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest
from tests.support.waiting import until
from tests.unit.inference.test_replicas import NOW, engine

from windlass.api.clusters.v1 import clusters_pb2 as pb
from windlass.inference.domain import Engine, InferencePolicy, Rows, View
from windlass.inference.scheduler import TOLD_AT_ONCE, InferenceScheduler

CHANGED = replace(engine("tiny"), generation=2)
WAKES = replace(CHANGED, id="eng-wakes", sleeps=True)
POLICY = InferencePolicy("builtin", 64, 4, 600, 1800)


class Services:
    """Rows, and the services that a scheduler asks; clusters answer once they are let."""

    known = True

    def __init__(self, engines: Sequence[Engine]):
        self.engines = engines
        self.asked = list[str]()
        self.told = list[str]()
        self.may_answer = asyncio.Event()

    @asynccontextmanager
    async def planning(self) -> AsyncIterator[bool]:
        yield True

    async def rows(self) -> Rows:
        return Rows(NOW, self.engines, [])

    async def brought(self) -> frozenset[tuple[str, str]]:
        return frozenset()

    async def busy(self) -> frozenset[str]:
        return frozenset()

    async def view(self, rows: Rows) -> View:
        return View({}, {}, {})

    async def newest(self, engines: Any) -> dict[tuple[str, str], int]:
        return {}

    async def apply(self, plan: Any) -> None:
        """Changes nothing: the rows are as they should be told."""

    async def make(self, one: Engine, view: View, stacks: Any) -> pb.Workload:
        self.asked.append(one.id)
        await self.may_answer.wait()
        if one.id == "eng-broken":
            raise ValueError("broken")
        return pb.Workload(id=one.id)

    async def PutWorkload(self, request: Any) -> None:
        """Takes what it is told."""

    async def mark_put(self, one: Engine) -> None:
        self.told.append(one.id)


def round_of(engines: Sequence[Engine]) -> tuple[Services, asyncio.Task[bool]]:
    fake: Any = Services(engines)
    scheduler = InferenceScheduler(fake, fake, fake, fake, fake, fake, fake, POLICY, lambda: None)
    return fake, asyncio.create_task(scheduler.once())


async def test_wakes_are_told_first_and_several_at_once() -> None:
    engines = [replace(CHANGED, id=f"eng-{number:02}", replica=number) for number in range(20)]
    asleep = replace(WAKES, id="eng-asleep", asleep=True)
    fake, planning = round_of([engine("other"), *engines, asleep, WAKES])
    await until(lambda: len(fake.asked) == TOLD_AT_ONCE)
    assert fake.asked[0] == "eng-wakes"
    fake.may_answer.set()
    await planning
    assert len(fake.told) == 22, "and the one that did not change is not told"


async def test_one_that_fails_keeps_no_other_from_being_told() -> None:
    broken = replace(CHANGED, id="eng-broken")
    fake, planning = round_of([broken, replace(CHANGED, id="eng-late"), WAKES])
    fake.may_answer.set()
    with pytest.raises(ValueError, match="broken"):
        await planning
    assert set(fake.told) == {"eng-late", "eng-wakes"}
