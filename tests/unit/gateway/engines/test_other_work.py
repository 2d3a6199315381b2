"""What others do at engines counts in the choice: once, in part, and no more than is believable.

Several gateways share engines whose figures are as old and coarse as those of agents.
"""

import asyncio
import heapq
import random
from collections.abc import Mapping, Sequence
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import settings as bounds
from hypothesis import strategies as st

from windlass.api.inference.v1.inference_pb2 import ReplicaLoad, RoutesDelta
from windlass.gateway.inference.engines import EngineConnectionPool, Engines, choice
from windlass.gateway.inference.engines.choice import BUSIER
from windlass.gateway.inference.engines.other_work import MOST, OtherWork
from windlass.gateway.inference.routes import EngineEndpoint, RouteTable
from windlass_agent.engines.load import EngineLoad
from windlass_agent.engines.metering import MEASURE_SECONDS, SteppedLoad

DELAY = 5


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Choices that are drawn the same in every run."""
    monkeypatch.setattr(choice, "random", random.Random(1))


class Gateway:
    """A gateway's choice, with the requests that it has open."""

    def __init__(self, there: Sequence[EngineEndpoint], numbers: random.Random):
        self.there = there
        self.engines = Engines()
        self.other_work = OtherWork(numbers.random)
        self.ends: list[tuple[float, int]] = []
        self.pools = [self.engines._pool(one.address) for one in there]

    def send(self, ends_at: float, conversation: int = 0) -> EngineConnectionPool:
        pool = self.engines.choose(self.there, conversation)
        assert pool is not None
        self.open(pool, ends_at)
        return pool

    def open(self, pool: EngineConnectionPool, ends_at: float) -> None:
        pool.active += 1
        heapq.heappush(self.ends, (ends_at, self.pools.index(pool)))

    def end(self, now: float) -> None:
        while self.ends and self.ends[0][0] <= now:
            self.pools[heapq.heappop(self.ends)[1]].active -= 1

    def weigh(self, loads: Mapping[str, ReplicaLoad]) -> None:
        self.other_work.weigh(loads, self.engines._pools)


class Site:
    """Gateways and engines; what these have to do is told late, in steps, and perhaps not so."""

    def __init__(
        self, gateways: int, engines: int, *, seed: int = 1, lies: Mapping[int, int] | None = None
    ):
        self.numbers = random.Random(seed)
        self.there = [
            EngineEndpoint(f"eng-{one}", f"unix:///run/eng-{one}", frozenset())
            for one in range(engines)
        ]
        self.gateways = [Gateway(self.there, self.numbers) for _ in range(gateways)]
        self.lies = lies or {}
        self.others = [0] * engines
        self.now = 0
        self.history: list[list[int]] = []
        self._stepped = [SteppedLoad() for _ in range(engines)]
        self._told: list[tuple[int, dict[str, ReplicaLoad]]] = []

    @property
    def requests(self) -> list[int]:
        """All requests of each engine."""
        each = zip(*([pool.active for pool in one.pools] for one in self.gateways), strict=True)
        return [sum(own) + other for own, other in zip(each, self.others, strict=True)]

    def run(self, seconds: int, *, rate: float, lasts: float, tells: bool = True) -> None:
        """Has each gateway send so many requests a second, which last so long on average."""
        for _ in range(seconds):
            self.now += 1
            loads = self._loads() if tells else {}
            for one in self.gateways:
                one.end(self.now)
                one.weigh(loads)
                for _ in range(int(rate + self.numbers.random())):
                    one.send(self.now + self.numbers.expovariate(1 / lasts))
            self.history.append(self.requests)

    def means(self, seconds: int) -> list[float]:
        """The mean of each engine's requests in the last seconds."""
        return [sum(each) / seconds for each in zip(*self.history[-seconds:], strict=True)]

    def _loads(self) -> dict[str, ReplicaLoad]:
        if self.now % MEASURE_SECONDS == 1:
            found = {}
            for number, (requests, load) in enumerate(
                zip(self.requests, self._stepped, strict=True)
            ):
                load.take(self.now, EngineLoad(running=requests), None)
                said = load.message()
                assert said is not None
                found[self.there[number].address] = told(self.lies.get(number, said.requests))
            self._told.append((self.now + DELAY, found))
        known = [loads for at, loads in self._told if at <= self.now]
        return known[-1] if known else {}


def told(requests: int, *, cache: int | None = None, version: str = "v") -> ReplicaLoad:
    return ReplicaLoad(engine_version_id=version, requests=requests, cache_percent=cache)


@bounds(max_examples=15, deadline=None)
@given(st.integers(2, 6), st.integers(2, 6), st.integers(1, 2**20))
async def test_gateways_with_old_figures_share_engines_evenly(
    gateways: int, engines: int, seed: int
) -> None:
    site = Site(gateways, engines, seed=seed)
    site.run(240, rate=3 * engines / gateways, lasts=5)
    means = site.means(200)
    assert max(means) - min(means) <= 0.25 * sum(means) / engines + 1
    # Nor do they all run to one and then to another.
    least = sum(means) / engines
    assert all(max(requests) <= 2.5 * least + 5 for requests in site.history[-200:])


@pytest.mark.usefixtures("drawn")
async def test_few_requests_of_many_gateways_do_not_follow_one_figure() -> None:
    site = Site(gateways=30, engines=4)
    site.run(300, rate=0.1, lasts=4)
    assert max(site.means(240)) - min(site.means(240)) < 1.5
    assert all(max(requests) <= 12 for requests in site.history[-240:]), "12 of all in the mean"


@pytest.mark.usefixtures("drawn")
@pytest.mark.parametrize("tells", [True, False])
async def test_work_of_others_is_made_up_for(tells: bool) -> None:
    """Somebody who uses none of these gateways keeps one engine of three busy."""
    site = Site(gateways=2, engines=3)
    site.others[0] = 20
    site.run(400, rate=3, lasts=5, tells=tells)
    busy, *others = site.means(200)
    assert busy - max(others) < 14 if tells else busy - max(others) > 17


@given(st.lists(st.integers(0, 40), min_size=1, max_size=8))
async def test_own_requests_are_not_counted_twice(active: list[int]) -> None:
    """However they change: the figure that comes late of a lone gateway has no others."""
    site = Site(gateways=1, engines=2)
    (gateway,) = site.gateways
    for number in active:
        for pool in gateway.pools:
            pool.active = number
        figures = {one.address: told(number) for one in site.there}
        for _ in range(30):
            gateway.weigh(figures)
        pools = gateway.pools
        assert pools[0].others == pools[1].others
    for _ in range(300):
        gateway.weigh(figures)
    assert [pool.others for pool in gateway.pools] == [0, 0]


@given(
    st.lists(st.integers(0, 30), min_size=2, max_size=6),
    st.integers(2, 8),
    st.integers(0, 2**20),
)
async def test_all_gateways_together_make_up_for_a_difference_once(
    behind: list[int], gateways: int, seed: int
) -> None:
    """Gateways that are alike get one figure, and open requests until the next one."""
    site = Site(gateways, len(behind), seed=seed)
    for one in site.gateways:
        for pool, number in zip(one.pools, behind, strict=True):
            pool.active = number
    before = site.requests
    figures = {
        there.address: told(number) for there, number in zip(site.there, before, strict=True)
    }
    for one in site.gateways:
        one.weigh(figures)
        while min(pool.active + pool.others for pool in one.pools) <= max(behind):
            one.send(1e9)
    # What is behind never gets far ahead, though no gateway sees what the others send.
    after = site.requests
    for had, has in zip(before, after, strict=True):
        assert has <= 2 * max(before) - had + 2 * gateways


@pytest.mark.usefixtures("drawn")
@pytest.mark.parametrize("lie", [0, 100_000])
async def test_an_engine_that_lies_gets_less_than_twice_its_share(lie: int) -> None:
    site = Site(gateways=3, engines=4, lies={0: lie})
    site.run(400, rate=4, lasts=6)
    liar, *honest = site.means(200)
    assert liar < 2 * sum(honest) / 3 + 1
    assert max(honest) - min(honest) < 0.3 * max(honest) + 1
    # Nor are figures of other models' engines believed less for it.
    gateway = site.gateways[0]
    other = Gateway(site.there, random.Random(1))
    figures = {site.there[0].address: told(lie, version="another")}
    figures |= {one.address: told(10 * n) for n, one in enumerate(site.there[1:])}
    for pool in other.pools:
        pool.active = 5
    other.weigh(figures)
    assert other.pools[1].others == 0 < other.pools[2].others < other.pools[3].others
    assert all(pool.others <= MOST for pool in gateway.pools)


async def test_requests_that_have_just_ended_are_not_taken_for_others() -> None:
    gateway = Site(gateways=1, engines=2).gateways[0]
    figures = {one.address: told(20) for one in gateway.there}
    for pool in gateway.pools:
        pool.active = 20
    for seconds in range(75):
        if seconds == 60:
            gateway.pools[0].active = 0
        gateway.weigh(figures)
    assert gateway.pools[0].others <= 2, "the figure is as old as that"


async def test_parts_of_requests_are_rounded_by_chance() -> None:
    """Else all gateways that have little to do would go by one figure at once."""
    site = Site(gateways=1, engines=2)
    shifted = 0
    for _ in range(400):
        gateway = Gateway(site.there, site.numbers)
        gateway.pools[1].active = 1
        gateway.weigh({one.address: told(3 - n) for n, one in enumerate(site.there)})
        shifted += gateway.pools[0].others
    assert 200 < shifted < 280, "this gateway has a fifth of all, and there are three of others"


async def test_loads_come_with_the_routes_and_change_none() -> None:
    table = RouteTable(cast("Any", None))
    table._apply(RoutesDelta(snapshot=True, loads=[ReplicaLoad(address="a", requests=0)]))
    changes = asyncio.ensure_future(table.change())
    await asyncio.sleep(0)
    table._apply(RoutesDelta(loads=[ReplicaLoad(address=one, requests=3) for one in "ab"]))
    assert {one: load.requests for one, load in table.loads().items()} == {"a": 3, "b": 3}
    table._apply(RoutesDelta(loads=[ReplicaLoad(address="a")]))
    assert [*table.loads()] == ["b"]
    await asyncio.sleep(0)
    assert not changes.done(), "nobody who waits for an engine is woken"
    table._apply(RoutesDelta(snapshot=True))
    assert not table.loads()
    await changes


async def test_what_is_not_known_any_more_counts_no_more() -> None:
    gateway = Site(gateways=1, engines=2).gateways[0]
    gateway.pools[1].active = 10
    gateway.weigh({gateway.there[0].address: told(30, cache=100)})
    assert gateway.pools[0].others == 0, "who has nothing there shifts nothing"
    gateway.pools[0].active = 10
    for _ in range(60):
        gateway.weigh({gateway.there[0].address: told(30, cache=100)})
    assert gateway.pools[0].others > 0
    assert gateway.pools[0].full
    gateway.weigh({})
    assert (gateway.pools[0].others, gateway.pools[0].full) == (0, False)


async def test_a_conversation_stays_where_others_work_and_leaves_a_full_cache() -> None:
    gateway = Site(gateways=1, engines=3).gateways[0]
    home = gateway.send(1e9, conversation=12_345)
    for others, is_home in ((BUSIER - 1, True), (BUSIER, False)):
        home.others = others
        assert (gateway.engines.choose(gateway.there, 12_345) is home) is is_home
    home.others = 0
    figures = {home.address: ReplicaLoad(cache_percent=100)}
    gateway.weigh(figures)
    assert gateway.engines.choose(gateway.there, 12_345) is not home, "it keeps no prefix"
    for pool in gateway.pools:
        pool.active = 1
    assert gateway.engines.choose(gateway.there, 12_345) is home, "nor is any other better"
