"""Engines that run whether or not somebody asks: how many, where, and who yields to whom."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import count

import pytest

from windlass.api.clusters.v1 import clusters_pb2 as pb
from windlass.inference.domain import (
    DELETED,
    RUNNING,
    UNKNOWN_SECONDS,
    Engine,
    InferencePolicy,
    Name,
    Rows,
    Serving,
    View,
    WantedVersion,
)
from windlass.inference.planning import EngineChanges, Planner

NOW = 1_000_000.0
WIDE = {"east": 8, "west": 8}
RUNS = pb.WorkloadStatus(generation=1, phase=pb.PHASE_RUNNING, endpoint="unix:///x")
MODELS = ("tiny", "other", "third")
NAMES = {
    **{model: Name(model, "proj-a", "org-a", model, model) for model in MODELS},
    "ft:tiny": Name("ft:tiny", "proj-a", "org-a", "ft:tiny", "tiny"),
}


def serving(model: str, replicas: int, *, age: float = 1.0, error: str = "") -> Serving:
    name = NAMES.get(model)
    base = name.engine_version_id if name else model
    return Serving("proj-a", model, "org-a", model, base, replicas, NOW - age, error=error)


def engine(model: str, replica: int = 0, cluster: str = "east") -> Engine:
    return Engine(
        id=f"eng-{model}-{replica}", version_id=model, model=model, project_id="proj-a",
        organization_id="org-a", cluster_id=cluster, engine="builtin", desired=RUNNING,
        generation=1, put_generation=1, adapters=(), created_at=NOW - 100, urls_at=NOW,
        replica=replica,
    )  # fmt: skip


def planned(
    servings: Sequence[Serving],
    running: Sequence[Engine] = (),
    *,
    wants: Sequence[WantedVersion] = (),
    clusters: Mapping[str, int] | None = None,
    max_engines: int = 8,
    quota: int = 0,
    names: Mapping[str, Name] | None = None,
    statuses: Mapping[str, pb.WorkloadStatus] | None = None,
    loads: Mapping[str, int] | None = None,
) -> EngineChanges:
    """The plan of a round; `clusters` have so many places for engines."""
    live = {
        name: pb.Cluster(
            id=name, live=True, shared=True, embedded=True, roles=["engines"],
            capacity=pb.Capacity(engines=["builtin"], engine_slots=slots),
        )
        for name, slots in (clusters or {"east": 8}).items()
    }  # fmt: skip
    rows = Rows(NOW, running, wants, servings, {"project": quota}, loads or {})
    policy = InferencePolicy("builtin", max_engines, 4, 600, 1800)
    numbers = count()
    view = View(names={**NAMES, **(names or {})}, statuses=statuses or {}, clusters=live)
    return Planner(rows, view, policy, lambda: f"eng-new-{next(numbers)}").plan()


def made(plan: EngineChanges) -> list[tuple[str, int, str]]:
    return [(one.model, one.replica, one.cluster_id) for one in plan.creates]


def ended(plan: EngineChanges) -> list[str]:
    return [old.id for old, new in plan.updates if new.desired == DELETED]


def test_so_many_engines_run_over_the_clusters_without_a_request() -> None:
    plan = planned([serving("tiny", 4)], clusters={"east": 2, "west": 8})
    assert made(plan) == [
        ("tiny", 0, "east"), ("tiny", 1, "west"), ("tiny", 2, "east"), ("tiny", 3, "west"),
    ]  # fmt: skip


def test_one_that_is_gone_comes_again_and_the_others_stay() -> None:
    plan = planned([serving("tiny", 3)], [engine("tiny", 0), engine("tiny", 2)])
    assert (made(plan), ended(plan)) == ([("tiny", 1, "east")], [])


def test_fewer_are_wanted_and_the_last_ones_end() -> None:
    running = [engine("tiny", number) for number in range(3)]
    assert ended(planned([serving("tiny", 1)], running)) == ["eng-tiny-1", "eng-tiny-2"]
    assert len(ended(planned([], running))) == 3


def test_fewer_leave_what_answers_whatever_its_number_is() -> None:
    running = [engine("tiny", number) for number in range(3)]
    # The first was preempted, and waits for quota.
    answers = {"eng-tiny-1": RUNS, "eng-tiny-2": RUNS}
    plan = planned([serving("tiny", 1)], running, statuses=answers)
    assert sorted(ended(plan)) == ["eng-tiny-0", "eng-tiny-2"]
    (moved,) = (new for _, new in plan.updates if new.desired == RUNNING)
    assert (moved.id, moved.replica) == ("eng-tiny-1", 0)


GLOBAL = Name("global", "", "", "global", "global")


def global_engine(replica: int) -> Engine:
    return replace(engine("global", replica), project_id="", organization_id="")


def test_load_on_a_model_for_everyone_takes_no_projects_only_engine() -> None:
    everyone = Serving("", "global", "", "global", "global", 1, NOW - 100, max_replicas=8)
    asked = WantedVersion("other", "other", used_at=NOW, since=NOW - 20)
    for running in ([global_engine(number) for number in range(4)], [global_engine(0)]):
        plan = planned(
            [everyone], running, wants=[asked], max_engines=4, names={"global": GLOBAL},
            loads={"global": 100},
        )  # fmt: skip
        assert ("other", 0, "east") in made(plan)


def test_an_adapter_is_loaded_on_every_engine_of_its_base_once() -> None:
    asked = WantedVersion("ft:tiny", "tiny", NOW, NOW - 5)
    plan = planned([serving("ft:tiny", 2)], wants=[asked])
    assert [one.adapters for one in plan.creates] == [("ft:tiny",)] * 2
    assert [one.model for one in plan.creates] == ["tiny"] * 2


def test_the_second_engine_of_a_model_takes_the_place_of_none() -> None:
    idle = WantedVersion("other", "other", NOW - 100, NOW - 200)
    plan = planned([serving("tiny", 2)], [engine("other")], wants=[idle], max_engines=2)
    assert (made(plan), ended(plan)) == ([("tiny", 0, "east")], [])


@pytest.mark.parametrize(
    ("quota", "max_engines", "words"),
    [
        (2, 8, "The project's 2 engines are in use, which is its quota."),
        (0, 2, "All 2 engines of the installation are in use."),
    ],
)
def test_a_lack_is_told_on_the_serving_and_taken_back(
    quota: int, max_engines: int, words: str
) -> None:
    running = [engine("tiny", 0), engine("tiny", 1)]
    wanted = serving("tiny", 3, age=60)
    plan = planned([wanted], running, quota=quota, max_engines=max_engines)
    assert [(want.serving, error) for want, error in plan.errors] == [(wanted, words)]
    told = serving("tiny", 3, age=60, error=words)
    assert not planned([told], running, quota=quota, max_engines=max_engines).errors
    # The third has a place now.
    assert [error for _, error in planned([told], running).errors] == [""]
    whole = [*running, engine("tiny", 2)]
    assert [error for _, error in planned([told], whole).errors] == [""]


def test_the_serving_of_a_model_that_is_gone_ends() -> None:
    gone = serving("never", 2, age=UNKNOWN_SECONDS + 1)
    assert planned([gone]).ended == [gone]
    assert not planned([serving("never", 2)]).ended, "the news of a new model may be late"


def test_what_nobody_asks_for_waits_for_room_and_takes_none_of_others() -> None:
    mine = engine("other")
    theirs = replace(engine("third"), project_id="proj-b", organization_id="org-b")
    idle = [
        WantedVersion(one.version_id, one.version_id, NOW - 100, NOW - 200)
        for one in (mine, theirs)
    ]
    plan = planned([serving("tiny", 1)], [theirs], wants=idle[1:], max_engines=1)
    assert (made(plan), ended(plan)) == ([], [])
    # Of the project's own it does, and so does what somebody asks for.
    plan = planned([serving("tiny", 1)], [mine, theirs], wants=idle, max_engines=2)
    assert (made(plan), ended(plan)) == ([("tiny", 0, "east")], ["eng-other-0"])
    asked = WantedVersion("tiny", "tiny", NOW, NOW)
    plan = planned([serving("tiny", 1)], [theirs], wants=[idle[1], asked], max_engines=1)
    assert (made(plan), ended(plan)) == ([("tiny", 0, "east")], ["eng-third-0"])


def full(
    *, percent: int = 100, phase: "pb.Phase.ValueType" = pb.PHASE_RUNNING
) -> pb.WorkloadStatus:
    load = pb.ServingLoad(cache_percent=percent)
    return pb.WorkloadStatus(generation=1, phase=phase, endpoint="unix:///x", load=load)


@pytest.mark.parametrize(
    ("status", "more"),
    [
        (full(), 1),
        (full(percent=90), 0),
        (full(percent=101), 0),
        (full(percent=-5), 0),
        (full(phase=pb.PHASE_STARTING), 0),
        (RUNS, 0),
    ],
)
def test_caches_of_engines_that_answer_decide_how_many_there_are(
    status: pb.WorkloadStatus, more: int
) -> None:
    scales = replace(serving("tiny", 1), max_replicas=3)
    running, loads = [engine("tiny")], {"tiny": 5}
    plan = planned([scales], running, statuses={"eng-tiny-0": status}, loads=loads)
    assert len(made(plan)) == more
    off = replace(scales, target_cache=0)
    assert not made(planned([off], running, statuses={"eng-tiny-0": status}, loads=loads))


def test_a_kept_engine_that_cannot_start_holds_no_place() -> None:
    failing = replace(engine("tiny"), failed_at=NOW - 5, retry_at=NOW + 300)
    asked = WantedVersion("other", "other", NOW, NOW - 1)
    plan = planned([serving("tiny", 1)], [failing], wants=[asked], max_engines=1)
    assert (made(plan), ended(plan)) == ([("other", 0, "east")], ["eng-tiny-0"])


@pytest.mark.parametrize(("quota", "max_engines"), [(1, 8), (0, 1)])
def test_lowered_bounds_end_the_last_ones(quota: int, max_engines: int) -> None:
    running = [engine("tiny", number) for number in range(3)]
    plan = planned([serving("tiny", 3)], running, quota=quota, max_engines=max_engines)
    assert ended(plan) == ["eng-tiny-2", "eng-tiny-1"]
    assert not made(plan)


def test_a_full_cluster_gets_no_second_engine() -> None:
    plan = planned([serving("tiny", 3, age=60)], clusters={"east": 2})
    assert made(plan) == [("tiny", 0, "east"), ("tiny", 1, "east")]
    assert [error for _, error in plan.errors] == ["No cluster has room for another engine."]


def test_requests_come_before_what_is_kept_where_adapters_are_too_many() -> None:
    kept = [replace(serving("tiny", 1), model=f"a{n}", version_id=f"a{n}") for n in range(9)]
    names = {one.version_id: replace(NAMES["ft:tiny"], version_id=one.version_id) for one in kept}
    asked = WantedVersion("ft:tiny", "tiny", NOW - 9, NOW - 60)
    plan = planned(kept, wants=[asked], names=names)
    assert plan.creates[0].adapters == ("ft:tiny", "a0", "a1", "a2")


def test_many_servings_are_planned_fast_enough_for_a_loop() -> None:
    """One refusal ends a version's turn, whatever is missing of it."""
    models = [f"m{number}" for number in range(300)]
    names = {model: replace(NAMES["tiny"], model=model, version_id=model, engine_version_id=model)
             for model in models}  # fmt: skip
    wide = [
        replace(serving("tiny", 64), model=m, version_id=m, engine_version_id=m) for m in models
    ]
    assert len(planned(wide, names=names, max_engines=4).creates) == 4


def test_the_only_engine_of_a_model_yields_to_nobody_whatever_its_number() -> None:
    other = WantedVersion("other", "other", used_at=NOW - 5, since=NOW - 30)
    third = WantedVersion("third", "third", used_at=NOW, since=NOW - 1)
    everyone = {name: Name(name, "", "", name, name) for name in ("tiny", "other", "third")}
    only = replace(engine("tiny", 1), project_id="", organization_id="")
    kept = Serving("", "tiny", "", "tiny", "tiny", 2, NOW - 1)
    asked = WantedVersion("tiny", "tiny", used_at=NOW, since=NOW - 1)
    plan = planned([kept], [only], wants=[asked, other, third], max_engines=2, names=everyone)
    assert ended(plan) == []
    assert len(made(plan)) == 1


def test_nobody_yields_to_the_engine_number_0_of_a_model_that_has_another() -> None:
    idle = WantedVersion("other", "other", NOW - 100, NOW - 200)
    running = [engine("tiny", 1), engine("other")]
    plan = planned([serving("tiny", 2)], running, wants=[idle], max_engines=2)
    assert (made(plan), ended(plan)) == ([], [])


@pytest.mark.parametrize(("age", "yields"), [(5, False), (100, True)])
def test_what_nobody_asks_for_takes_no_place_that_was_just_given(age: int, yields: bool) -> None:
    started = replace(engine("other"), created_at=NOW - age)
    asked = WantedVersion("other", "other", used_at=NOW - 40, since=NOW - 50)
    plan = planned([serving("tiny", 1)], [started], wants=[asked], max_engines=1)
    assert ended(plan) == ([started.id] if yields else [])


def test_engines_are_spread_by_the_weights_of_clusters() -> None:
    weighed = replace(serving("tiny", 4), clusters=(("east", 3), ("west", 1)))
    spread = Counter(cluster for _, _, cluster in made(planned([weighed], clusters=WIDE)))
    assert spread == {"east": 3, "west": 1}


def test_engines_run_in_no_cluster_that_is_not_named() -> None:
    there = replace(serving("tiny", 2), clusters=(("west", 1),))
    assert {cluster for _, _, cluster in made(planned([there], clusters=WIDE))} == {"west"}
    away = replace(there, clusters=(("north", 1),), updated_at=NOW - 100)
    plan = planned([away], clusters=WIDE)
    assert not made(plan)
    ((_, said),) = plan.errors
    assert said == "None of the clusters in which its serving lets it run is live."


def test_an_engine_elsewhere_goes_once_another_answers() -> None:
    there = replace(serving("tiny", 1), clusters=(("west", 1),))
    old = engine("tiny", 0, "east")
    plan = planned([there], [old], clusters=WIDE, statuses={old.id: RUNS})
    assert (made(plan), ended(plan)) == ([("tiny", 1, "west")], [])
    new = engine("tiny", 1, "west")
    plan = planned([there], [old, new], clusters=WIDE, statuses={old.id: RUNS, new.id: RUNS})
    assert ended(plan) == [old.id]


@pytest.mark.parametrize(
    ("own", "unused", "stays"),
    [(0, 500, True), (0, 700, False), (60, 50, True), (60, 70, False), (3600, 700, True)],
)
def test_a_model_may_be_idle_for_its_own_time(own: int, unused: int, stays: bool) -> None:
    on_demand = replace(serving("tiny", 0), idle_seconds=own)
    asked = WantedVersion("tiny", "tiny", NOW - unused, NOW - 1000)
    plan = planned([on_demand], [engine("tiny")], wants=[asked], statuses={"eng-tiny-0": RUNS})
    assert ended(plan) == ([] if stays else ["eng-tiny-0"])


def test_a_lost_engine_is_made_up_for_where_there_is_room() -> None:
    here, lost = engine("tiny", 0, "east"), engine("tiny", 1, "west")
    wanted, running, told = [serving("tiny", 2)], [here, lost], {here.id: RUNS, lost.id: RUNS}
    full = planned(wanted, running, clusters={"east": 1}, statuses=told)
    # Its agent may be back in a moment, and finds it as it was.
    assert (ended(full), made(full)) == ([], [])
    roomy = planned(wanted, running, clusters={"east": 2}, statuses=told)
    assert (ended(roomy), made(roomy)) == ([lost.id], [("tiny", 1, "east")])


def test_where_no_other_answers_others_make_room_for_a_lost_engine() -> None:
    lost, idle = engine("tiny", 0, "west"), engine("other", 0, "east")
    told = {lost.id: RUNS, idle.id: RUNS}
    wants = [WantedVersion("other", "other", NOW - 100, NOW - 100)]
    plan = planned(
        [serving("tiny", 1)], [lost, idle], wants=wants, clusters={"east": 1}, statuses=told
    )
    assert lost.id in ended(plan)
