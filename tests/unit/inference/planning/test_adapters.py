"""The adapters of a base's engines over rounds of planning, as gateways ask for them."""

from dataclasses import dataclass, field, replace

from tests.unit.inference.test_planning import applied
from tests.unit.inference.test_replicas import engine, serving

from windlass.api.clusters.v1 import clusters_pb2 as pb
from windlass.inference.domain import Engine, InferencePolicy, Name, Rows, View, WantedVersion
from windlass.inference.planning import Planner
from windlass.inference.planning.adapters import AdapterStays
from windlass.inference.planning.failed_loads import (
    MAX_PAUSE_SECONDS,
    MAX_REMEMBERED,
    PAUSE_SECONDS,
    FailedLoads,
)
from windlass.modelfiles.adapter_traits import AdapterTraits

NOW = 1_000_000.0
POLICY = InferencePolicy("builtin", 8, 8, 600, 1800)
VERSIONS = [f"ft:{number:02}" for number in range(50)]
NAMES = {
    "tiny": Name("tiny", "", "", "tiny", "tiny"),
    **{version: Name(version, "proj-a", "org-a", version, "tiny") for version in VERSIONS},
}
CLUSTER = pb.Cluster(
    id="east", live=True, shared=True, embedded=True, roles=["engines"],
    capacity=pb.Capacity(engines=["builtin"], engine_slots=8),
)  # fmt: skip


@dataclass
class World:
    """Engines of one base that load at once what they are told to; each second is a round."""

    engines: list[Engine]
    names: dict[str, Name] = field(default_factory=lambda: dict(NAMES))
    stays: AdapterStays = field(default_factory=AdapterStays)
    now: float = NOW
    refuses: frozenset[str] = frozenset()
    starting: frozenset[str] = frozenset()
    loads: int = 0

    def round(self, wants: dict[str, float], open_requests: dict[str, int]) -> None:
        """Plans once and does so; `wants` are the seconds since each was used."""
        statuses = {
            one.id: pb.WorkloadStatus(
                generation=one.generation,
                phase=pb.PHASE_STARTING if one.id in self.starting else pb.PHASE_RUNNING,
                endpoint="unix:///x",
                adapters=[
                    pb.LoadedAdapter(
                        id=v, version_id=v, error="no such layer" if v in self.refuses else ""
                    )
                    for v in one.adapters
                ],
            )
            for one in self.engines
        }
        view = View(names=self.names, statuses=statuses, clusters={"east": CLUSTER})
        asked = [
            WantedVersion(version, "tiny", self.now - age, NOW - 60)
            for version, age in {"tiny": 0.0, **wants}.items()
        ]
        kept = [replace(serving("tiny", len(self.engines)), project_id="", updated_at=NOW - 60)]
        rows = Rows(self.now, self.engines, asked, kept, adapter_loads=open_requests)
        plan = Planner(rows, view, POLICY, lambda: "eng-new", stays=self.stays).plan()
        before = {one.id: set(one.adapters) for one in self.engines}
        self.engines = list(applied(rows, plan).engines)
        self.loads += sum(len(set(one.adapters) - before[one.id]) for one in self.engines)
        self.now += 1

    @property
    def held(self) -> list[set[str]]:
        return [set(one.adapters) for one in self.engines]


def world(engines: int) -> World:
    made = [engine("tiny", number) for number in range(engines)]
    return World([replace(one, project_id="", organization_id="") for one in made])


def test_three_engines_hold_three_times_as_many() -> None:
    three = world(3)
    used = dict.fromkeys(VERSIONS[:24], 30.0)
    for _ in range(3):
        three.round(used, {})
    assert set.union(*three.held) == set(VERSIONS[:24])
    assert [len(held) for held in three.held] == [8, 8, 8]
    assert three.loads == 24


def test_few_are_on_every_engine_and_make_room_for_more() -> None:
    three = world(3)
    for number in (2, 8, 20, 24):
        for _ in range(6):
            three.round(dict.fromkeys(VERSIONS[:number], 2.0), {})
        assert set.union(*three.held) == set(VERSIONS[:number])
    assert all(len(held) == 8 for held in three.held)


def test_wants_that_are_said_again_move_nothing() -> None:
    one = world(1)
    for second in range(40):
        # All fifty in turns, each every ten seconds, and no request is open when it is looked at.
        ages = {version: float((second + number) % 10) for number, version in enumerate(VERSIONS)}
        one.round(ages, {})
    # A place changes hands once in its stay, not at each word.
    assert one.loads <= 8 * (1 + 40 / 3)
    settled = world(1)
    for _ in range(40):
        settled.round(dict.fromkeys(VERSIONS, 5.0), dict.fromkeys(VERSIONS[:8], 1))
    assert settled.held == [set(VERSIONS[:8])]
    assert settled.loads <= 16


def test_all_of_fifty_that_requests_wait_for_get_their_turn() -> None:
    one = world(1)
    waiting = dict.fromkeys(VERSIONS, 1)
    for _ in range(40):
        # What has been loaded for a second has answered.
        there = one.held[0]
        one.round({version: 2.0 if version in waiting else 5.0 for version in VERSIONS}, waiting)
        waiting = {version: 1 for version in waiting if version not in there}
        if not waiting:
            break
    assert not waiting
    assert one.loads == 50


def test_what_one_engine_cannot_load_goes_where_it_fits() -> None:
    two = world(2)
    high = replace(NAMES["ft:00"], adapter=AdapterTraits(1, ("bias",)))
    two.names["ft:00"] = high
    two.round({"ft:00": 0.0, "ft:01": 0.0}, {"ft:00": 1})
    assert two.held == [{"ft:01"}] * 2


def test_a_new_version_takes_the_place_of_the_one_that_is_gone() -> None:
    one = world(1)
    one.round(dict.fromkeys(VERSIONS[:8], 0.0), dict.fromkeys(VERSIONS[:8], 1))
    del one.names["ft:00"]
    one.names["mv-new"] = Name("ft:00", "proj-a", "org-a", "mv-new", "tiny")
    wants = dict.fromkeys([*VERSIONS[:8], "mv-new"], 0.0)
    one.round(wants, dict.fromkeys(wants, 1))
    assert one.held == [{*VERSIONS[1:8], "mv-new"}]


def test_what_cannot_be_loaded_takes_no_place_of_others() -> None:
    one = world(1)
    one.refuses = frozenset(VERSIONS[:8])
    for _ in range(5):
        one.round(dict.fromkeys(VERSIONS[:8], 0.0), {})
    one.round(dict.fromkeys(VERSIONS[:16], 0.0), dict.fromkeys(VERSIONS[8:16], 1))
    assert one.held == [set(VERSIONS[8:16])]


def test_what_only_an_engine_that_starts_has_gets_its_turn_on_another() -> None:
    two = world(2)
    busy = dict.fromkeys(VERSIONS[:8], 1)
    for _ in range(3):
        two.round(dict.fromkeys(VERSIONS[:16], 2.0), dict.fromkeys(VERSIONS[:16], 1))
    (lost,) = [one for one in two.engines if "ft:08" in one.adapters]
    two.starting = frozenset({lost.id})
    (left,) = [one for one in two.engines if one.id != lost.id]
    for _ in range(30):
        two.round(dict.fromkeys([*VERSIONS[:8], "ft:08"], 2.0), {**busy, "ft:08": 1})
        if "ft:08" in {v for one in two.engines if one.id == left.id for v in one.adapters}:
            return
    raise AssertionError("it starves")


def tenants(number: int) -> World:
    """One engine, and an adapter of each of so many tenants."""
    made = world(1)
    for version in VERSIONS[:number]:
        made.names[version] = replace(NAMES[version], project_id=f"of-{version}")
    return made


def test_what_cannot_be_loaded_is_tried_again_ever_later() -> None:
    one, busy, broken = tenants(9), dict.fromkeys(VERSIONS[:8], 1), "ft:08"
    one.refuses = frozenset({broken})
    for _ in range(20):
        one.round(dict.fromkeys(busy, 2.0), busy)
    before, tries = one.loads, 0
    for _ in range(300):
        there = broken in one.held[0]
        one.round(dict.fromkeys([*busy, broken], 2.0), {**busy, broken: 1})
        tries += broken in one.held[0] and not there
    assert 2 <= tries <= 5, "after 30, 60, 120 and 240 seconds"
    assert one.loads - before <= 2 * tries, "each takes one place, and gives it back"


def test_what_can_be_loaded_again_is_paused_no_more() -> None:
    one, busy, broken = tenants(9), dict.fromkeys(VERSIONS[:8], 1), "ft:08"
    one.refuses = frozenset({broken})
    for _ in range(60):
        one.round(dict.fromkeys([*busy, broken], 2.0), {**busy, broken: 1})
    one.refuses = frozenset()
    for _ in range(150):
        one.round(dict.fromkeys([*busy, broken], 2.0), {**busy, broken: 1})
        if broken in one.held[0] and not one.stays.paused(one.engines[0], one.now):
            return
    raise AssertionError("it stays paused")


def test_failures_are_forgotten_with_their_engine_and_in_time() -> None:
    failed = FailedLoads()
    for number in range(MAX_REMEMBERED + 5):
        failed.add(NOW, "eng-1", f"mv-{number}")
    assert len(failed.paused("eng-1", NOW)) == MAX_REMEMBERED
    assert "mv-0" not in failed.paused("eng-1", NOW)
    failed.add(NOW, "eng-2", "mv-0")
    failed.forget(NOW, {"eng-2"})
    assert not failed.paused("eng-1", NOW)
    for _ in range(2000):
        failed.add(NOW, "eng-2", "mv-0")
    assert failed.paused("eng-2", NOW + MAX_PAUSE_SECONDS - 1) == {"mv-0"}
    assert not failed.paused("eng-2", NOW + MAX_PAUSE_SECONDS)
    failed.forget(NOW + 2 * MAX_PAUSE_SECONDS, {"eng-2"})
    failed.add(NOW, "eng-2", "mv-0")
    assert not failed.paused("eng-2", NOW + PAUSE_SECONDS), "it begins anew"
