"""Requests that wait for busy engines: whose turn it is, for how long they wait, and how many."""

import asyncio
from collections import Counter
from collections.abc import Mapping
from types import MappingProxyType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windlass.gateway.errors import HttpError
from windlass.gateway.inference.engines import Asker, EnginePlace, Engines, NoAnswer, Tenant, places
from windlass.gateway.inference.engines.lines import AGED_SECONDS, Line, Waiter
from windlass.gateway.inference.routes import EngineEndpoint

Endpoints = tuple[EngineEndpoint, ...]
FOREVER = 1000.0


def tenant(project: str) -> Tenant:
    """A project, of the organization before its dot if there is one."""
    return Tenant(project.partition(".")[0] if "." in project else "org", project)


def endpoint(name: str, room: int = 1) -> EngineEndpoint:
    return EngineEndpoint(name, f"tunnel://east/{name}", frozenset(), places=room)


class Waiting:
    """Engines of one version, and the requests that wait for a place there."""

    def __init__(
        self,
        *endpoints: EngineEndpoint,
        priorities: Mapping[str, int] = MappingProxyType({}),
        **weights: int,
    ):
        self.engines = Engines(weights=weights, priorities=priorities)
        self.there: Endpoints = endpoints
        # In the order in which they got a place.
        self.got: list[tuple[str, EnginePlace]] = []
        self.tasks: list[asyncio.Task[None]] = []

    def take(self, project: str, among: Endpoints = ()) -> EnginePlace:
        place = self.engines.place(among or self.there, Asker("mv", tenant(project)))
        assert place is not None
        return place

    async def ask(
        self,
        project: str,
        among: Endpoints = (),
        *,
        background: bool = False,
        seconds: float = FOREVER,
    ) -> asyncio.Task[None]:
        """A request that stands in line."""
        asker = Asker("mv", tenant(project), background)
        assert self.engines.place(among or self.there, asker) is None

        async def wait() -> None:
            place = await self.engines.wait(
                asker, among, lambda: among or self.there, seconds=seconds
            )
            self.got.append((project, place))

        self.tasks.append(asyncio.create_task(wait()))
        await asyncio.sleep(0)
        return self.tasks[-1]

    async def turns(self, held: EnginePlace, number: int) -> list[str]:
        """Whose turns come next, where each gives its place back at once."""
        for _ in range(number):
            self.engines.done(held)
            await got()
            held = self.got[-1][1]
        return [project for project, _ in self.got]


async def got() -> None:
    """Lets those go on that got a place, or left."""
    for _ in range(5):
        await asyncio.sleep(0)


async def test_an_engine_gets_no_more_than_its_places_and_the_next_one_waits() -> None:
    world = Waiting(endpoint("a", 2))
    first, second = world.take("p"), world.take("p")
    task = await world.ask("p")
    assert (world.engines.waiting, first.pool.active) == (1, 2)
    world.engines.done(first)
    # It is given away at once, so that nobody who comes later takes it.
    assert world.engines.place(world.there, Asker("mv", tenant("q"))) is None
    await task
    assert (world.engines.waiting, second.pool.active) == (0, 2)


async def test_a_place_of_another_line_is_given_on_where_the_engine_is_the_same() -> None:
    world = Waiting(endpoint("a"))
    held = world.engines.place(world.there, Asker("before", tenant("p")))
    assert held is not None
    task = await world.ask("q")
    world.engines.done(held)
    await got()
    assert task.done(), "nobody else would tell it"


async def test_without_a_known_number_nobody_waits() -> None:
    world = Waiting(endpoint("a", 0))
    assert [world.take("p").pool.active for _ in range(100)][-1] == 100


async def test_the_place_goes_to_the_project_with_the_fewest_open_requests() -> None:
    world = Waiting(endpoint("a", 3))
    held = [world.take("greedy") for _ in range(3)]
    for project in ("greedy", "greedy", "modest", "other", "modest"):
        await world.ask(project)
    assert await world.turns(held[0], 5) == ["modest", "other", "modest", "greedy", "greedy"]


async def test_places_are_shared_by_weight() -> None:
    world = Waiting(endpoint("a", 8), heavy=3)
    held = [world.take("other") for _ in range(8)]
    for project in ("light", "heavy") * 8:
        await world.ask(project)
    for place in held:
        world.engines.done(place)
        await got()
    assert Counter(project for project, _ in world.got) == {"heavy": 6, "light": 2}
    # One that has nothing open waits for nobody's third.
    assert {project for project, _ in world.got[:4]} == {"heavy", "light"}


async def test_many_projects_of_one_organization_have_its_share_together() -> None:
    world = Waiting(endpoint("a", 4))
    held = [world.take(f"many.{number}") for number in range(4)]
    for project in ("many.4", "many.5", "one.1", "one.1", "one.2"):
        await world.ask(project)
    for place in held:
        world.engines.done(place)
        await got()
    assert [project for project, _ in world.got] == ["one.1", "one.2", "many.4", "many.5"]


async def test_an_organization_may_have_a_weight_too() -> None:
    world = Waiting(endpoint("a", 8), heavy=3)
    held = [world.take("other.1") for _ in range(8)]
    for number in range(8):
        await world.ask("light.1")
        await world.ask(f"heavy.{number}")
    for place in held:
        world.engines.done(place)
        await got()
    organizations = Counter(project.partition(".")[0] for project, _ in world.got)
    assert organizations == {"heavy": 6, "light": 2}


async def test_a_place_says_if_the_engine_too_shall_let_others_go_first() -> None:
    world = Waiting(endpoint("a"))
    held = world.take("p")
    old, new = await world.ask("p", background=True), await world.ask("p", background=True)
    waiters(world)[0].since -= AGED_SECONDS
    world.engines.done(held)
    await old
    world.engines.done(world.got[0][1])
    await new
    assert [place.background for _, place in world.got] == [False, True]


async def test_projects_with_as_many_take_turns_by_arrival() -> None:
    world = Waiting(endpoint("a"), endpoint("b"))
    one, _ = world.take("p"), world.take("q")
    for project in ("q", "p", "p", "q"):
        await world.ask(project)
    # What gave its place back has none, and the other one has.
    assert await world.turns(one, 4) == ["p", "p", "q", "q"]


async def test_what_runs_in_the_background_comes_last_and_yet_comes() -> None:
    world = Waiting(endpoint("a"))
    held = world.take("p")
    await world.ask("grader", background=True)
    await world.ask("p")
    await world.ask("p")
    assert await world.turns(held, 3) == ["p", "p", "grader"]


async def test_what_waits_is_told_apart_from_what_lets_others_go_first() -> None:
    world = Waiting(endpoint("e"))
    held = world.take("a")
    assert world.engines.lines() == {}
    await world.ask("a", background=True)
    assert world.engines.lines() == {"mv": (0, 0.0, 1)}
    await world.ask("b")
    await world.ask("c")
    line = world.engines.lines()["mv"]
    assert (line.requests, line.background) == (2, 1)
    assert 0 <= line.seconds < FOREVER
    assert await world.turns(held, 3) == ["b", "c", "a"]
    assert world.engines.lines() == {}


async def test_what_has_waited_long_in_the_background_is_like_the_others() -> None:
    line, now = Line("mv"), 1000.0
    old = Waiter(line, tenant("grader"), "kind", background=True, since=now - AGED_SECONDS - 1)
    new = Waiter(line, tenant("p"), "kind", background=False, since=now)
    line.join(new, tuple)
    line.join(old, tuple)
    assert line.first(now, {"kind"}) is old
    assert line.first(now - 2, {"kind"}) is new
    assert line.first(now, {"other"}) is None


async def test_an_adapter_waits_for_the_engines_that_have_it_and_holds_up_nobody() -> None:
    a, b = endpoint("a"), endpoint("b")
    world = Waiting(a, b)
    on_a, on_b = world.take("p", (a,)), world.take("p", (b,))
    adapter = await world.ask("p", (b,))
    base = await world.ask("p")
    world.engines.done(on_a)
    await base
    assert not adapter.done()
    world.engines.done(on_b)
    await adapter


async def test_engines_that_come_take_what_waits_and_those_that_go_let_it_look_again() -> None:
    a, b = endpoint("a"), endpoint("b")
    world = Waiting(a)
    world.take("p")
    first, second = await world.ask("p"), await world.ask("p")
    changed = asyncio.Event()

    async def change() -> None:
        await changed.wait()
        changed.clear()

    following = asyncio.create_task(world.engines.follow(change))
    world.there = (a, b)
    changed.set()
    await first
    assert world.got[0][1].pool.address == b.address
    world.there = ()
    changed.set()
    with pytest.raises(NoAnswer):
        await second
    following.cancel()


async def test_a_wait_ends_with_its_time_and_says_when_to_come_again() -> None:
    world = Waiting(endpoint("a"))
    world.take("p")
    task = await world.ask("p", seconds=0.01)
    with pytest.raises(HttpError) as caught:
        await task
    assert (caught.value.status, caught.value.code) == (503, "engines_busy")
    assert int(caught.value.headers["retry-after"]) >= 1
    assert world.engines.waiting == 0


async def test_a_client_that_leaves_loses_its_turn_and_keeps_no_place() -> None:
    world = Waiting(endpoint("a"))
    held = world.take("p")
    left, next_one, third = [await world.ask("p") for _ in range(3)]
    left.cancel()
    with pytest.raises(asyncio.CancelledError):
        await left
    # This one leaves in the very moment in which it gets the place.
    world.engines.done(held)
    next_one.cancel()
    with pytest.raises(asyncio.CancelledError):
        await next_one
    await third
    assert [project for project, _ in world.got] == ["p"]
    assert world.got[0][1].pool.active == 1


async def test_a_place_goes_on_in_whichever_order_its_receiver_leaves() -> None:
    for leaves_first in (True, False):
        world = Waiting(endpoint("a"))
        held = world.take("p")
        leaving, stays = await world.ask("p"), await world.ask("q")
        if leaves_first:
            leaving.cancel()
            world.engines.done(held)
        else:
            world.engines.done(held)
            leaving.cancel()
        await stays
        assert [project for project, _ in world.got] == ["q"]
        world.engines.done(world.got[0][1])
        assert world.engines._pool(world.there[0].address).active == 0
        # No line is kept for nothing.
        assert not world.engines._places._lines


async def test_a_place_that_became_free_before_the_line_was_joined_is_found() -> None:
    world = Waiting(endpoint("a"))
    held, asker = world.take("p"), Asker("mv", tenant("p"))
    assert world.engines.place(world.there, asker) is None
    world.engines.done(held)
    place = await world.engines.wait(asker, (), lambda: world.there, seconds=0.01)
    world.engines.done(place)
    assert place.pool.active == 0


async def test_an_engine_that_is_let_back_gets_what_waits_for_it() -> None:
    world = Waiting(endpoint("a", 4), endpoint("b", 4))
    held = [world.take("p", world.there[:1]) for _ in range(4)]
    address = world.there[1].address
    ejections = world.engines._ejections
    ejections.failed(address)
    for _ in range(4):
        await world.ask("p")
    assert not world.got
    ejections._ejected[address].room = 1
    world.engines._places.rerouted()
    await got()
    assert len(world.got) == 1
    assert ejections.answered(address)
    world.engines._places.rerouted()
    await got()
    assert len(world.got) == 2
    # Nobody who comes later is served before them.
    world.engines.done(held.pop())
    await got()
    assert len(world.got) == 3


async def test_after_a_quiet_hour_nobody_is_told_to_wait_for_one() -> None:
    line = Line("mv")
    for at in (1.0, 1.1, 1.2):
        waiter = Waiter(line, tenant("p"), "kind", background=False, since=at)
        line.join(waiter, tuple)
        line.freed(at)
    before = line._interval
    for waiter in list(line):
        line.leave(waiter)
    line.join(Waiter(line, tenant("p"), "kind", background=False, since=3600.0), tuple)
    line.freed(3600.0)
    assert line._interval == before


async def test_of_too_many_the_last_of_the_greediest_project_gives_way(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(places, "WAITERS", 4)
    world = Waiting(endpoint("a"))
    world.take("p")
    greedy = [await world.ask("greedy") for _ in range(3)]
    await world.ask("modest")
    refused = await world.ask("greedy")
    with pytest.raises(HttpError) as caught:
        await refused
    assert (caught.value.status, caught.value.code) == (429, "engines_busy")
    await world.ask("modest")
    with pytest.raises(HttpError, match="3 requests of this project wait already"):
        await greedy[-1]
    await asyncio.sleep(0)
    assert world.engines.waiting == 4
    assert not any(task.done() for task in greedy[:2])


async def test_what_may_wait_gives_way_to_what_may_not_of_the_same_project(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(places, "WAITERS", 3)
    world = Waiting(endpoint("a"))
    world.take("p")
    now = await world.ask("greedy")
    flex = [await world.ask("greedy", background=True) for _ in range(2)]
    refused = await world.ask("greedy", background=True)
    with pytest.raises(HttpError, match="3 requests of this project"):
        await refused
    await world.ask("greedy")
    with pytest.raises(HttpError, match="3 requests of this project"):
        await flex[1]
    # Those of an organization give way to another's, whatever their project.
    await world.ask("modest.1")
    with pytest.raises(HttpError, match="3 requests of this project"):
        await flex[0]
    assert not now.done()


async def test_a_heavy_project_may_wait_with_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(places, "WAITERS", 4)
    world = Waiting(endpoint("a"), heavy=3)
    world.take("p")
    for project in ("heavy", "heavy", "light", "light"):
        await world.ask(project)
    refused = await world.ask("light")
    with pytest.raises(HttpError, match="2 requests of this project"):
        await refused
    await world.ask("heavy")
    assert Counter(waiter.tenant.project_id for waiter in waiters(world)) == {
        "heavy": 3,
        "light": 1,
    }


def waiters(world: Waiting) -> list[Waiter]:
    return list(world.engines._places._lines["mv"])


@given(
    steps=st.lists(
        st.tuples(st.sampled_from(["ask", "end", "leave"]), st.sampled_from("pqr"), st.booleans()),
        max_size=60,
    ),
    rooms=st.lists(st.integers(1, 3), min_size=1, max_size=3),
)
async def test_no_place_is_lost_or_given_twice(
    steps: list[tuple[str, str, bool]], rooms: list[int]
) -> None:
    world = Waiting(*(endpoint(str(number), room) for number, room in enumerate(rooms)))
    open_places: list[EnginePlace] = []
    for step, project, background in steps:
        open_places += [place for _, place in world.got]
        world.got.clear()
        if step == "ask":
            asker = Asker("mv", tenant(project), background)
            if place := world.engines.place(world.there, asker):
                open_places.append(place)
            else:
                await world.ask(project, background=background)
        elif step == "end" and open_places:
            world.engines.done(open_places.pop(0))
        elif step == "leave" and world.tasks:
            world.tasks.pop(0).cancel()
        await got()
        counts = Counter(place.pool.address for place in open_places)
        counts.update(place.pool.address for _, place in world.got)
        for one in world.there:
            assert world.engines._pool(one.address).active == counts[one.address] <= one.places
        # Nobody waits where there is room.
        assert not world.engines.waiting or counts.total() == sum(rooms)
    for task in world.tasks:
        task.cancel()
    await asyncio.gather(*world.tasks, return_exceptions=True)
