"""Engines that their cluster does not start: another is asked, and the first to answer stays."""

from collections.abc import Mapping
from itertools import count
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from windlass.api.clusters.v1 import clusters_pb2 as pb
from windlass.inference.domain import RUNNING, Engine, InferencePolicy, Name, Rows, Serving, View
from windlass.inference.planning import EngineChanges, Planner
from windlass.inference.planning.round import SUBSTITUTE
from windlass.inference.planning.scaling import Scalers
from windlass.inference.planning.waits import ASK_SECONDS, Waits

NAMES = {"tiny": Name("tiny", "proj-a", "org-a", "tiny", "tiny")}
POLICY = InferencePolicy("builtin", 8, 4, 600, 1e9)
CLUSTERS = ("east", "north", "south", "west")


class World:
    """Clusters that admit an engine when a test says so, and the engines that were planned."""

    def __init__(self, *clusters: str, replicas: int = 1, quota: int = 0, most: int = 0):
        self.now = 1_000_000.0
        self.replicas, self.quota, self.most = replicas, quota, most
        self.names = dict(NAMES)
        self.phases: dict[str, Any] = {}
        self.engines: list[Engine] = []
        self._clusters = clusters or CLUSTERS
        self.waits, self.scalers, self._numbers = Waits(), Scalers(), count()

    def round(self, after: float = 0.0, *, replicas: int | None = None) -> EngineChanges:
        self.now += after
        self.replicas = self.replicas if replicas is None else replicas
        wanted = [
            Serving(
                "proj-a", model, "org-a", model, model, self.replicas, self.now,
                max_replicas=self.most,
            )
            for model in self.names
        ]  # fmt: skip
        loads = {"tiny": 1} if self.most else {}
        rows = Rows(self.now, self.engines, [], wanted, {"project": self.quota}, loads)
        new_id = lambda: f"eng-{next(self._numbers)}"  # noqa: E731
        plan = Planner(rows, self._view(), POLICY, new_id, self.scalers, self.waits).plan()
        engines = {one.id: one for one in self.engines}
        engines |= {after.id: after for _, after in plan.updates}
        engines |= {one.id: one for one in plan.creates}
        self.engines = [one for one in engines.values() if one.desired == RUNNING]
        return plan

    def say(self, phase: Any, *clusters: str) -> None:
        """Says a phase of every engine in some clusters."""
        for one in self.engines:
            if one.cluster_id in clusters:
                self.phases[one.id] = phase

    @property
    def places(self) -> dict[str, int]:
        """The number of each engine by its cluster, where there is one in each."""
        return {one.cluster_id: one.replica for one in self.engines}

    def engines_of(self, model: str) -> list[tuple[str, int]]:
        return [(one.cluster_id, one.replica) for one in self.engines if one.model == model]

    def _view(self) -> View:
        live = {
            name: pb.Cluster(
                id=name, live=True, shared=True, embedded=True, roles=["engines"],
                capacity=pb.Capacity(engines=["builtin"], engine_slots=8),
            )
            for name in self._clusters
        }  # fmt: skip
        statuses = {one.id: self._status(one) for one in self.engines}
        return View(names=self.names, statuses=statuses, clusters=live)

    def _status(self, engine: Engine) -> pb.WorkloadStatus:
        phase = self.phases.get(engine.id, pb.PHASE_PENDING)
        endpoint = "unix:///e" if phase == pb.PHASE_RUNNING else ""
        return pb.WorkloadStatus(generation=engine.generation, phase=phase, endpoint=endpoint)


def waiting_world(*clusters: str, **numbers: int) -> World:
    """One whose first engine has been seen waiting in the first of the clusters."""
    world = World(*clusters, **numbers)
    world.round()
    world.round()
    return world


def asked_world(*clusters: str, **numbers: int) -> World:
    """One in which another cluster was asked."""
    world = waiting_world(*clusters, **numbers)
    world.round(ASK_SECONDS + 1)
    return world


def test_another_cluster_is_asked_once_one_has_not_admitted_the_engine_for_long() -> None:
    world = waiting_world("east", "west")
    world.round(ASK_SECONDS)
    assert world.places == {"east": 0}
    world.round(1)
    assert world.places == {"east": 0, "west": SUBSTITUTE}
    ids = {one.id for one in world.engines}
    for _ in range(5):
        # There is no third cluster: both keep their places in the queues.
        world.round(100 * ASK_SECONDS)
    assert {one.id for one in world.engines} == ids


def test_the_one_that_answers_first_stays() -> None:
    for first, other in (("east", "west"), ("west", "east")):
        world = asked_world("east", "west")
        world.say(pb.PHASE_STARTING, first)
        world.round(1)
        world.say(pb.PHASE_RUNNING, first)
        world.round(1)
        assert (other, world.places) == (other, {first: 0})


def test_one_that_starts_is_not_given_up_for_one_that_was_admitted_later() -> None:
    world = asked_world("east", "west")
    world.say(pb.PHASE_STARTING, "west")
    world.round(1)
    world.say(pb.PHASE_STARTING, "east")
    world.round(1)
    assert world.places == {"east": 0, "west": SUBSTITUTE}
    world.say(pb.PHASE_RUNNING, "west")
    world.round(1)
    assert world.places == {"west": 0}


def test_one_that_still_waits_ends_once_the_first_is_admitted() -> None:
    world = asked_world("east", "west")
    world.say(pb.PHASE_STARTING, "east")
    world.round(1)
    assert world.places == {"east": 0}


def test_every_cluster_is_asked_in_its_turn_and_each_for_longer() -> None:
    world, asked, waited = asked_world(), [], []
    for _ in range(6):
        (other,) = set(world.places) - {"east"}
        asked.append(other)
        seconds = 0.0
        while other in world.places:
            world.round(ASK_SECONDS)
            seconds += ASK_SECONDS
            assert len(world.engines) == 2
        waited.append(seconds)
    assert asked == ["north", "south", "west"] * 2
    assert waited == sorted(waited)
    assert (waited[0], waited[-1]) == (4 * ASK_SECONDS, 22 * ASK_SECONDS)


@pytest.mark.parametrize("phase", [pb.PHASE_PENDING, pb.PHASE_STARTING])
def test_another_planner_keeps_a_substitute(phase: Any) -> None:
    world = asked_world("east", "west")
    world.say(phase, "west")
    for east in (pb.PHASE_PENDING, pb.PHASE_FAILED):
        # As two that plan in turns, neither of which has seen what the other has.
        world.say(east, "east")
        world.waits = Waits()
        world.round(5)
        assert world.places == {"east": 0, "west": SUBSTITUTE}


def test_a_place_in_a_queue_is_given_up_for_none_that_is_worse() -> None:
    world = waiting_world("east", "north", "west", replicas=2)
    world.say(pb.PHASE_RUNNING, "north")
    world.round(ASK_SECONDS + 1)
    before = {one.id for one in world.engines}
    assert world.places == {"east": 0, "north": 1, "west": SUBSTITUTE}
    for _ in range(10):
        world.round(100 * ASK_SECONDS)
    assert {one.id for one in world.engines} == before


def test_a_model_that_fails_wherever_it_starts_is_not_carried_through_all_clusters() -> None:
    world = waiting_world()
    started = set()
    for _ in range(720):
        world.round(5)
        started |= {(one.id, one.generation) for one in world.engines}
        world.say(pb.PHASE_FAILED, *CLUSTERS)
    # In an hour, with pauses of five minutes at last.
    assert len(started) < 20
    assert {one.cluster_id for one in world.engines} == {"east"}


def test_a_full_quota_of_engines_asks_nobody() -> None:
    assert asked_world("east", "west", quota=1).places == {"east": 0}


def test_a_substitute_makes_room_for_the_engines_of_others() -> None:
    world = asked_world("east", "west", quota=2)
    world.names["other"] = Name("other", "proj-a", "org-a", "other", "other")
    world.round(1)
    assert ("other", 0) in {(one.model, one.replica) for one in world.engines}
    assert world.engines_of("tiny") == [("east", 0)]
    world.round(ASK_SECONDS + 1)
    assert len(world.engines) == 2


def test_load_does_not_take_a_substitute_for_an_engine() -> None:
    world = asked_world("east", "west", most=8)
    for _ in range(5):
        # A planner that is new takes what runs for what is needed.
        world.scalers = Scalers()
        world.round(1)
    assert world.places == {"east": 0, "west": SUBSTITUTE}


def test_an_engine_that_is_preempted_keeps_its_place_while_another_is_asked() -> None:
    world = waiting_world("east", "west")
    world.say(pb.PHASE_RUNNING, "east")
    world.round(100 * ASK_SECONDS)
    world.say(pb.PHASE_PENDING, "east")
    world.round()
    world.round(ASK_SECONDS)
    assert world.places == {"east": 0}
    world.round(1)
    assert world.places == {"east": 0, "west": SUBSTITUTE}


def test_others_of_the_model_are_left_alone() -> None:
    world = waiting_world("east", "north", "west", replicas=2)
    assert world.places == {"east": 0, "north": 1}
    world.say(pb.PHASE_STARTING, "north")
    world.round(ASK_SECONDS + 1)
    assert world.places == {"east": 0, "north": 1, "west": SUBSTITUTE}
    world.say(pb.PHASE_RUNNING, "west")
    world.round(1)
    # The one that starts has lost nothing to it.
    assert world.places == {"west": 0, "north": 1}


PHASES = st.sampled_from([pb.PHASE_PENDING, pb.PHASE_STARTING, pb.PHASE_FAILED])
STEPS = st.lists(
    st.tuples(
        st.dictionaries(st.sampled_from(CLUSTERS), PHASES),
        st.integers(1, 3),
        st.floats(0.5, 100),
        st.booleans(),
    ),
    max_size=12,
)


@settings(max_examples=150, deadline=None)
@given(steps=STEPS, room=st.sets(st.sampled_from(CLUSTERS), min_size=1))
def test_whatever_was_before_wherever_there_is_room_the_model_answers(
    steps: list[tuple[Mapping[str, Any], int, float, bool]], room: set[str]
) -> None:
    world = World()
    for phases, replicas, seconds, restarts in steps:
        for cluster, phase in phases.items():
            world.say(phase, cluster)
        if restarts:
            world.waits = Waits()
        world.round(seconds, replicas=replicas)
        assert len(world.engines) <= replicas + 1
        places = [one.replica for one in world.engines]
        assert len(places) == len(set(places))
    for _ in range(60):
        world.say(pb.PHASE_PENDING, *(set(CLUSTERS) - room))
        world.say(pb.PHASE_RUNNING, *room)
        world.round(10 * ASK_SECONDS, replicas=1)
    (left,) = world.engines
    assert left.cluster_id in room
    assert left.replica == 0
