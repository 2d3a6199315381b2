"""Adapters keep the bounds of their engines, rest under constant demand, and starve nobody."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from windlass.inference.planning.adapter_places import (
    STAY_SECONDS,
    TURN_SECONDS,
    AdapterCopy,
    AdapterDemand,
    AdapterHost,
)
from windlass.inference.planning.placing import placed

NOW = 1_000_000.0
TARGET = 8
OLD = AdapterCopy(NOW - 1000, is_loaded=True)
Placed = Mapping[str, tuple[str, ...]]


def host(name: str, places: int, *held: str, is_ready: bool = True) -> AdapterHost:
    return AdapterHost(name, places, dict.fromkeys(held, OLD), is_ready=is_ready)


def asked(version: str, project: str = "p", requests: int = 1, age: float = 1.0) -> AdapterDemand:
    return AdapterDemand(version, project, requests, NOW - age, NOW - 60)


def rested(version: str, project: str = "p", age: float = 30.0) -> AdapterDemand:
    return AdapterDemand(version, project, 0, NOW - age, NOW)


def decided(
    hosts: Sequence[AdapterHost],
    demands: Sequence[AdapterDemand],
    refused: frozenset[tuple[str, str]] = frozenset(),
    now: float = NOW,
) -> dict[str, set[str]]:
    there = {version for one in hosts for version in one.copies}
    # What has a place waits no longer than since now.
    told = [replace(one, waits_since=now) if one.version_id in there else one for one in demands]
    found = placed(
        now, hosts, told, lambda one, version: (one, version) not in refused, target=TARGET
    )
    return {name: set(held) for name, held in found.items()}


def after(
    hosts: Sequence[AdapterHost], found: Mapping[str, set[str]], now: float
) -> list[AdapterHost]:
    """The engines once they were told so, before they have loaded anything new.

    What failed and left is not tried again for a while.
    """
    return [
        replace(
            one,
            copies={v: one.copies.get(v, AdapterCopy(now)) for v in sorted(found[one.id])},
            paused={v for v, copy in one.copies.items() if copy.has_failed} - found[one.id],
        )
        for one in hosts
    ]


def loaded(hosts: Sequence[AdapterHost], now: float) -> list[AdapterHost]:
    return [
        replace(
            one,
            copies={
                version: copy if copy.is_loaded else AdapterCopy(now, is_loaded=True)
                for version, copy in one.copies.items()
            },
        )
        for one in hosts
    ]


VERSIONS = [f"v{number}" for number in range(12)]


@st.composite
def copies(draw: st.DrawFn) -> AdapterCopy:
    since = NOW - draw(st.sampled_from([0.0, 1.0, 5.0, 20.0, 500.0]))
    is_loaded = draw(st.booleans())
    return AdapterCopy(since, is_loaded, has_failed=not is_loaded and draw(st.booleans()))


@st.composite
def some_hosts(draw: st.DrawFn) -> list[AdapterHost]:
    return [
        AdapterHost(
            f"h{number}",
            places,
            draw(st.dictionaries(st.sampled_from(VERSIONS), copies(), max_size=places)),
            is_ready=draw(st.sampled_from([True, True, False])),
        )
        for number in range(draw(st.integers(1, 4)))
        for places in [draw(st.integers(0, 4))]
    ]


@st.composite
def some_demands(draw: st.DrawFn) -> list[AdapterDemand]:
    return [
        AdapterDemand(
            version,
            draw(st.sampled_from(["a", "a", "b", "c"])),
            draw(st.sampled_from([0, 0, 1, 3, 9, 30])),
            draw(st.sampled_from([0.0, NOW - 1, NOW - 20, NOW - 100, NOW - 101])),
            NOW - draw(st.sampled_from([0.0, 5.0, 30.0])),
        )
        for version in sorted(draw(st.sets(st.sampled_from(VERSIONS))))
    ]


REFUSED = st.frozensets(st.tuples(st.sampled_from(["h0", "h1"]), st.sampled_from(VERSIONS)))


@given(some_hosts(), some_demands(), REFUSED)
@settings(max_examples=300)
def test_bounds_hold_and_nothing_changes_twice(
    hosts: list[AdapterHost], demands: list[AdapterDemand], refused: frozenset[tuple[str, str]]
) -> None:
    found = decided(hosts, demands, refused)
    wanted = {one.version_id for one in demands}
    for one in hosts:
        assert len(found[one.id]) <= one.places
        assert found[one.id] <= wanted
        assert not {(one.id, version) for version in found[one.id]} & refused
        # What has just been told or loaded stays.
        fresh = {v for v, copy in one.copies.items() if copy == AdapterCopy(NOW, is_loaded=True)}
        stays = {v for v in fresh & wanted if (one.id, v) not in refused}
        assert stays <= found[one.id]
    # The order of the rows says nothing.
    assert decided(hosts[::-1], demands[::-1], refused) == found
    # What was displaced begins to wait.
    before = {version for one in hosts for version in one.copies}
    waits = [replace(one, waits_since=NOW) if one.version_id in before else one for one in demands]
    # What fits few engines may have got its place from what fits others, which is seen next.
    for _ in range(4 if refused else 0):
        hosts = after(hosts, found, NOW)
        found = decided(hosts, waits, refused)
    assert decided(after(hosts, found, NOW), waits, refused) == found


@given(st.integers(1, 4), st.integers(1, 4), some_demands())
def test_whatever_is_wanted_has_a_place_where_there_are_enough(
    engines: int, places: int, demands: list[AdapterDemand]
) -> None:
    hosts = [host(f"h{number}", places) for number in range(engines)]
    demands = demands[: engines * places]
    # No load that asks for a second copy of one before another has its first.
    cold = [replace(one, requests=min(one.requests, TARGET)) for one in demands]
    found = decided(hosts, cold)
    assert set().union(*found.values()) == {one.version_id for one in demands}
    # And no time moves it.
    for age in (1.0, 100.0, 10_000.0):
        hosts = loaded(after(hosts, found, NOW), NOW)
        later = [replace(one, used_at=one.used_at and one.used_at + age) for one in cold]
        assert decided(hosts, later, now=NOW + age) == found


@given(st.integers(1, 3), st.integers(1, 4), st.integers(1, 30), st.integers(1, 3))
@settings(max_examples=60)
def test_nobody_starves_and_changes_are_bounded(
    engines: int, places: int, number: int, projects: int
) -> None:
    """All of them have open requests all the time; those of each project take turns."""
    hosts = [host(f"h{one}", places) for one in range(engines)]
    owners = {f"v{one:02}": f"p{one * one % projects}" for one in range(number)}
    waits, turns, changes = dict.fromkeys(owners, NOW), dict.fromkeys(owners, 0), 0
    seconds = 40 * (number // (engines * places) + 2) * projects
    for second in range(seconds):
        now = NOW + second
        demands = [
            AdapterDemand(version, owner, 1, now - 1, waits[version])
            for version, owner in owners.items()
        ]
        found = decided(hosts, demands, now=now)
        before = {one.id: set(one.copies) for one in hosts}
        changes += sum(len(found[name] - before[name]) for name in before)
        hosts = loaded(after(hosts, found, now), now)
        there = set[str]().union(*found.values())
        for version in owners:
            turns[version] += version in there
            if version in there:
                waits[version] = now + 1
    assert min(turns.values()) >= TURN_SECONDS
    assert changes <= engines * places * (seconds / TURN_SECONDS + 2)


def test_a_second_copy_goes_before_anything_that_is_alone() -> None:
    hosts = [host("h0", 2, "a", "b"), host("h1", 2, "a", "c")]
    demands = [rested(one) for one in "abc"]
    found = decided(hosts, [*demands, asked("new")])
    assert set().union(*found.values()) == {"a", "b", "c", "new"}


def test_the_least_recently_used_leaves_and_not_before_its_stay() -> None:
    demands = [rested("a", age=20), rested("b", age=30), asked("new")]
    assert decided([host("h", 2, "a", "b")], demands) == {"h": {"a", "new"}}
    fresh = AdapterCopy(NOW - STAY_SECONDS / 2, is_loaded=True)
    hosts = [AdapterHost("h", 2, {"a": fresh, "b": fresh})]
    assert decided(hosts, demands) == {"h": {"a", "b"}}


def test_what_has_requests_gives_way_only_in_turns() -> None:
    busy = [asked("a"), replace(asked("b"), requests=2)]
    demands = [*busy, replace(asked("new"), waits_since=NOW - 1)]
    assert decided([host("h", 2, "a", "b")], demands) == {"h": {"a", "b"}}
    since = {"a": AdapterCopy(NOW - 20, is_loaded=True), "b": AdapterCopy(NOW - 50, is_loaded=True)}
    hosts = [AdapterHost("h", 2, since)]
    demands = [*busy, replace(asked("new"), waits_since=NOW - 11)]
    assert decided(hosts, demands) == {"h": {"a", "new"}}, "the one that was there for longest"


def test_what_is_still_being_loaded_stays_with_its_requests() -> None:
    hosts = [AdapterHost("h", 1, {"a": AdapterCopy(NOW - 60)})]
    assert decided(hosts, [asked("a"), asked("new")]) == {"h": {"a"}}
    hosts = [AdapterHost("h", 1, {"a": AdapterCopy(NOW - 130)})]
    assert decided(hosts, [rested("a"), asked("new")]) == {"h": {"new"}}


def test_what_an_engine_failed_to_load_is_tried_on_another_and_leaves_for_others() -> None:
    failed = {"a": AdapterCopy(NOW - 5, has_failed=True)}
    hosts = [AdapterHost("h0", 1, failed), host("h1", 1, "b")]
    assert decided(hosts, [asked("a"), rested("b", age=90)]) == {"h0": {"b"}, "h1": {"a"}}
    assert decided([hosts[0]], [rested("a"), asked("new")]) == {"h0": {"new"}}


def test_what_failed_does_not_come_back_in_the_plan_that_it_leaves_in() -> None:
    failed = {"hot": AdapterCopy(NOW - 5, has_failed=True), "a": OLD}
    hosts = [AdapterHost("h0", 2, failed), host("h1", 1)]
    demands = [asked("hot", requests=TARGET + 1), rested("a", age=90), rested("b", age=100)]
    found = decided(hosts, demands)
    assert found == {"h0": {"a", "b"}, "h1": {"hot"}}
    assert decided(after(hosts, found, NOW), demands) == found


def test_a_hot_one_is_on_as_many_engines_as_its_load_asks_for() -> None:
    hosts = [host(f"h{one}", 2, f"x{one}", f"y{one}") for one in range(4)]
    cold = [rested(f"{letter}{one}", age=100 + one) for letter in "xy" for one in range(4)]
    found = decided(hosts, [*cold, asked("hot", requests=3 * TARGET)])
    assert sum("hot" in held for held in found.values()) == 3
    # It keeps them while it has half as much, and nobody needs them.
    hosts = loaded(after(hosts, found, NOW), NOW - 100)
    again = decided(hosts, [*cold, asked("hot", requests=TARGET + 1)])
    assert again == found
    # A request for one that has no place gets one of them.
    (gone, *_) = {one.version_id for one in cold} - set().union(*found.values())
    cold = [replace(one, used_at=NOW - 30) for one in cold if one.version_id != gone]
    again = decided(hosts, [*cold, asked("hot", requests=3 * TARGET), asked(gone)])
    assert sum("hot" in held for held in again.values()) == 2


def test_adapters_spread_over_engines_by_their_load() -> None:
    demands = [asked("a", requests=6), asked("b", requests=5), asked("c"), asked("d")]
    roomy = [host("h0", 4, "a"), host("h1", 4)]
    assert decided(roomy, demands) == {"h0": set("abcd"), "h1": set("abcd")}, "on all that have it"
    tight = decided([host("h0", 2, "a"), host("h1", 2)], demands)
    assert tight in ({"h0": {"a", "c"}, "h1": {"b", "d"}}, {"h0": {"a", "d"}, "h1": {"b", "c"}})


def test_one_project_does_not_take_the_places_of_all() -> None:
    many = [asked(f"m{one}", "many") for one in range(50)]
    held = [f"m{one}" for one in range(4)]
    few = [asked("f0", "few"), asked("f1", "few"), asked("f2", "few")]
    found = decided([host("h", 4, *held)], [*many, *few])["h"]
    assert len(found & {"f0", "f1", "f2"}) == 2
    # With its share, it keeps it while it is used.
    rest = [replace(one, requests=0, used_at=NOW - 20) for one in few]
    hosts = [host("h", 4, "f0", "f1", "m0", "m1")]
    assert {"f0", "f1"} <= decided(hosts, [*many, *rest])["h"]


def test_an_engine_that_is_not_ready_takes_no_adapter_from_one_that_is() -> None:
    starting = host("h1", 1, is_ready=False)
    assert decided([host("h0", 1), starting], [asked("a"), rested("b")]) == {
        "h0": {"a"},
        "h1": {"a"},
    }
    assert decided([replace(starting, id="h0"), starting], [asked("a"), rested("b")]) == {
        "h0": {"a"},
        "h1": {"b"},
    }


def test_what_does_not_fit_anywhere_keeps_nobody_waiting() -> None:
    hosts = [host("h0", 1, "old"), host("h1", 1, "other")]
    refused = frozenset({("h0", "high"), ("h1", "high"), ("h0", "new")})
    demands = [asked("high"), asked("new"), rested("old"), rested("other")]
    assert decided(hosts, demands, refused) == {"h0": {"old"}, "h1": {"new"}}


def test_fewer_places_leave_what_is_needed_most() -> None:
    demands = [rested("a", age=40), rested("b", age=20), rested("c", age=30)]
    assert decided([host("h", 2, "a", "b", "c")], demands) == {"h": {"b", "c"}}


def test_one_that_fits_nowhere_stops_no_other_of_its_project() -> None:
    hosts = [host("h0", 1), host("h1", 1)]
    refused = frozenset({("h0", "a"), ("h1", "a"), ("h0", "b")})
    assert decided(hosts, [asked("a"), asked("b")], refused) == {"h0": set(), "h1": {"b"}}
