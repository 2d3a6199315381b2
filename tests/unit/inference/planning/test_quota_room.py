"""Engines go where Kueue's quota has room for them, and where their files are; then they stay."""

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import replace
from itertools import count
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.inference.planning.test_node_rooms import LARGE, shape

from windlass.api.clusters.v1 import clusters_pb2 as pb
from windlass.inference.domain import RUNNING, Engine, InferencePolicy, Name, Rows, Serving, View
from windlass.inference.places import CandidateCluster, choose
from windlass.inference.places.quota_room import QueueRoom
from windlass.inference.planning import Planner
from windlass.inference.planning.round import SUBSTITUTE
from windlass.inference.planning.waits import ASK_SECONDS, Waits
from windlass.modelfiles.footprint import Footprint

POLICY = InferencePolicy("vllm", 32, 4, 600, 1e9)
NAME = Name("tiny", "proj-a", "org-a", "mv-1", "mv-1")
QUEUE = "team-a"


class QuotaWorld:
    """Clusters with a queue each, of which a test says what is free and what starts."""

    def __init__(self, **free: int):
        """`free` are the GPUs of each cluster's queue that nobody has reserved."""
        self.now, self.free = 1_000_000.0, dict(free)
        self.name, self.gpus, self.replicas = NAME, 1, 1
        self.weights: dict[str, int] = {}
        self.prices = dict.fromkeys(free, 0)
        self.each = pb.EngineShare()
        self.shapes: Collection[pb.NodeShape] = ()
        self.active = True
        self.held: dict[str, Collection[str]] = {}
        self.prefetched: Collection[tuple[str, str]] = ()
        self.phases: dict[str, Any] = {}
        self.engines: list[Engine] = []
        self.waits, self._numbers = Waits(), count()

    def round(self, after: float = 0.0) -> None:
        self.now += after
        serving = Serving(
            "proj-a", "tiny", "org-a", "mv-1", "mv-1", self.replicas, self.now, gpus=self.gpus,
            clusters=tuple(self.weights.items()),
        )  # fmt: skip
        rows = Rows(self.now, self.engines, [], [serving], prefetched=self.prefetched)
        new_id = lambda: f"eng-{next(self._numbers)}"  # noqa: E731
        plan = Planner(rows, self._view(), POLICY, new_id, waits=self.waits).plan()
        found = {one.id: one for one in self.engines}
        found |= {after.id: after for _, after in plan.updates}
        found |= {one.id: one for one in plan.creates}
        self.engines = [one for one in found.values() if one.desired == RUNNING]

    def admit(self, *clusters: str) -> None:
        """Reserves the GPUs of the engines that wait in some clusters, and starts them."""
        for one in self.engines:
            if one.cluster_id in clusters and one.id not in self.phases:
                self.phases[one.id] = pb.PHASE_RUNNING
                self.free[one.cluster_id] -= one.gpus

    @property
    def spread(self) -> dict[str, int]:
        """The number of engines in each cluster that has some."""
        return dict(Counter(one.cluster_id for one in self.engines))

    @property
    def ids(self) -> set[str]:
        return {one.id for one in self.engines}

    def _view(self) -> View:
        statuses = {}
        for one in self.engines:
            phase = self.phases.get(one.id, pb.PHASE_PENDING)
            endpoint = "pod://e" if phase == pb.PHASE_RUNNING else ""
            statuses[one.id] = pb.WorkloadStatus(generation=1, phase=phase, endpoint=endpoint)
        return View(
            names={"mv-1": self.name},
            statuses=statuses,
            clusters={name: self._cluster(name) for name in self.free},
            assigned={
                name: {
                    "proj-a": pb.Assignment(
                        namespace="a", cluster_queue=QUEUE, ready=True, price_micros=price
                    )
                }
                for name, price in self.prices.items()
            },
            tunnels=set(self.free),
            queues={name: {QUEUE: self._queue(free)} for name, free in self.free.items()},
        )

    def _cluster(self, name: str) -> pb.Cluster:
        capacity = pb.Capacity(engines=["vllm"], engine_slots=64, gpus=64, each_engine=self.each)
        capacity.model_versions.extend(self.held.get(name, ()))
        capacity.node_shapes.extend(self.shapes)
        return pb.Cluster(
            id=name, live=True, executor="kubernetes", roles=["engines"], capacity=capacity
        )

    def _queue(self, free: int) -> pb.ClusterQueue:
        quotas = [
            pb.ResourceQuota(flavor="spot", resource="nvidia.com/gpu", available=free),
            pb.ResourceQuota(flavor="a100", resource="nvidia.com/gpu", available=free // 2),
            pb.ResourceQuota(flavor="spot", resource="cpu", available=2000),
            pb.ResourceQuota(flavor="spot", resource="memory", available=2**30),
        ]
        return pb.ClusterQueue(name=QUEUE, active=self.active, quotas=quotas)


def test_an_engine_starts_where_the_queue_has_room() -> None:
    world = QuotaWorld(east=0, west=2)
    world.round()
    (made,) = world.engines
    assert (made.cluster_id, made.placement_reason) == ("west", "2 GPUs free in its queue team-a")


def test_engines_that_start_at_once_take_what_each_queue_has() -> None:
    world = QuotaWorld(east=1, north=0, west=3)
    world.replicas = 4
    world.round()
    assert world.spread == {"east": 1, "west": 3}
    # Whether the cluster has said nothing yet or that they wait, they take their room.
    world.replicas = 5
    for _ in range(2):
        world.round(1)
        assert world.spread == {"east": 1, "north": 1, "west": 3}


def test_one_that_was_admitted_takes_no_room_twice() -> None:
    world = QuotaWorld(east=0, west=2)
    world.round()
    world.admit("west")
    world.replicas = 2
    world.round(1)
    assert world.spread == {"west": 2}


@pytest.mark.parametrize(
    ("field", "value"), [("weights", {"east": 9, "west": 1}), ("prices", {"east": 1, "west": 2})]
)
def test_weights_and_prices_come_before_room(field: str, value: Mapping[str, int]) -> None:
    world = QuotaWorld(east=0, west=2)
    setattr(world, field, value)
    world.round()
    assert world.spread == {"east": 1}


def test_a_cluster_whose_queue_is_not_known_has_room() -> None:
    world = QuotaWorld(east=0, west=0)
    world.gpus = 0
    world.round()
    assert world.engines[0].placement_reason == "first of equal clusters"


@pytest.mark.parametrize(
    ("each", "weights", "reason"),
    [
        (pb.EngineShare(gpus=1), 0, "1 GPU free in its queue team-a"),
        (pb.EngineShare(cpu_millis=2500), 0, "first of equal clusters"),
        (pb.EngineShare(cpu_millis=2000, gpus=1), 0, "1 GPU free in its queue team-a"),
        (pb.EngineShare(memory_bytes=2**31), 0, "first of equal clusters"),
        (pb.EngineShare(), 2**31, "first of equal clusters"),
    ],
)
def test_room_is_for_all_that_an_engine_takes(
    each: pb.EngineShare, weights: int, reason: str
) -> None:
    world = QuotaWorld(east=0, west=1)
    world.gpus, world.each = 0, each
    footprint = Footprint(weights, 0, 0, 0, 0, 1, 1, 0)
    world.name = Name("tiny", "proj-a", "org-a", "mv-1", "mv-1", footprint=footprint)
    world.round()
    assert world.engines[0].placement_reason == reason


def test_a_queue_that_admits_nothing_has_no_room() -> None:
    world = QuotaWorld(east=8, west=8)
    world.active = False
    world.round()
    world.round()
    world.round(ASK_SECONDS + 1)
    substitute = next(one for one in world.engines if one.replica == SUBSTITUTE)
    assert substitute.placement_reason == (
        "another cluster did not admit one in time; its queue team-a admits nothing"
    )


def test_another_cluster_is_asked_that_has_room_though_it_has_engines() -> None:
    world = QuotaWorld(east=0, north=0, west=1)
    world.weights = {"east": 1, "north": 1, "west": 9}
    world.round()
    world.admit("west")
    world.replicas = 2
    world.weights = {"east": 9, "north": 9, "west": 1}
    world.round()
    world.round()
    assert world.spread == {"east": 1, "west": 1}
    world.free["west"] = 3
    world.round(ASK_SECONDS + 1)
    assert world.spread == {"east": 1, "west": 2}


def test_one_that_says_it_has_room_and_admits_nothing_is_not_asked_again_before_others() -> None:
    world = QuotaWorld(east=0, north=0, south=9, west=0)
    world.weights = {"east": 100, "north": 1, "south": 1, "west": 1}
    world.round()
    world.round()
    asked = []
    for _ in range(6):
        before = world.ids
        while world.ids == before:
            world.round(ASK_SECONDS)
        asked.append(next(one.cluster_id for one in world.engines if one.replica))
    assert asked == ["south", "north", "west"] * 2


@pytest.mark.parametrize("source", ["held", "prefetched"])
def test_of_equal_clusters_the_one_with_the_files_is_taken(source: str) -> None:
    world = QuotaWorld(east=2, west=2)
    value = {"west": ["mv-1"]} if source == "held" else {("west", "mv-1")}
    setattr(world, source, value)
    world.round()
    (made,) = world.engines
    assert (made.cluster_id, made.placement_reason) == ("west", "has the model's files")


def test_files_come_after_room_and_spread() -> None:
    world = QuotaWorld(east=2, west=0)
    world.held = {"west": ["mv-1"]}
    world.round()
    assert world.spread == {"east": 1}
    world.admit("east")
    world.free = {"east": 2, "west": 2}
    world.held = {"east": ["mv-1"]}
    world.replicas = 2
    world.round(1)
    assert world.spread == {"east": 1, "west": 1}


FIGURES = st.fixed_dictionaries({name: st.integers(0, 3) for name in ("east", "north", "west")})


@settings(max_examples=100, deadline=None)
@given(
    first=FIGURES,
    later=st.lists(st.tuples(FIGURES, st.floats(0.1, ASK_SECONDS / 5), st.booleans()), max_size=4),
    replicas=st.integers(1, 4),
    admitted=st.sets(st.sampled_from(["east", "north", "west"])),
)
def test_figures_that_change_move_nothing_that_runs_or_waits_within_its_patience(
    first: Mapping[str, int],
    later: list[tuple[Mapping[str, int], float, bool]],
    replicas: int,
    admitted: set[str],
) -> None:
    world = QuotaWorld(**first)
    world.replicas = replicas
    world.round()
    world.admit(*admitted)
    before = world.ids
    assert len(before) == replicas
    for figures, seconds, holds in later:
        world.free = dict(figures)
        world.held = {"north": ["mv-1"]} if holds else {}
        world.round(seconds)
        assert world.ids == before


ROOMS = st.builds(QueueRoom, st.booleans(), st.sampled_from(["", "1 GPU free"]))
CANDIDATES = st.lists(
    st.builds(
        CandidateCluster, cluster_id=st.text("abcdef", min_size=1), is_full=st.booleans(),
        weight=st.integers(1, 2), same=st.integers(0, 2), is_shared=st.booleans(),
        price_micros=st.integers(0, 1), room=ROOMS, has_files=st.booleans(),
        engines=st.integers(0, 2),
    ),
    min_size=1, max_size=6, unique_by=lambda one: one.cluster_id,
)  # fmt: skip


@given(candidates=CANDIDATES)
def test_nothing_waits_for_quota_while_an_equal_cluster_has_room(
    candidates: list[CandidateCluster],
) -> None:
    chosen, reason = choose(candidates)
    assert reason
    best = next(one for one in candidates if one.cluster_id == chosen)
    equal = [one for one in candidates if one.terms == best.terms]
    if any(not one.is_full for one in candidates):
        assert not best.is_full
        assert best.room.is_there or not any(one.room.is_there for one in equal if not one.is_full)
    alike = [
        one
        for one in equal
        if (one.is_full, one.same, one.room.is_there)
        == (best.is_full, best.same, best.room.is_there)
    ]
    assert best.has_files or not any(one.has_files for one in alike)


def test_room_is_for_the_gpus_that_an_estimate_asks_for() -> None:
    world = QuotaWorld(first=1, second=8)
    world.name, world.gpus = replace(NAME, footprint=LARGE), 0
    world.each = pb.EngineShare(gpus=1, memory_bytes=2**20)
    world.shapes = [shape(8, 80)]
    world.round()
    assert [(one.cluster_id, one.gpus) for one in world.engines] == [("second", 2)]
