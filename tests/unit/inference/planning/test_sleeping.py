"""Sleep of engines: due when nobody asks, over at once when somebody does, and first to yield."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import count

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from windlass.api.clusters.v1 import clusters_pb2 as pb
from windlass.inference.domain import (
    DELETED,
    RUNNING,
    Engine,
    InferencePolicy,
    Name,
    Rows,
    Serving,
    View,
    WantedVersion,
)
from windlass.inference.planning import EngineChanges, Planner
from windlass.inference.planning.waits import PLACE_SECONDS, Waits
from windlass.inference.routing import routes_of

NOW = 1_000_000.0
IDLE, SLEEP = 600, 60
NAMES = {
    "tiny": Name("tiny", "proj-a", "org-a", "tiny", "tiny"),
    "ft:tiny": Name("ft:tiny", "proj-a", "org-a", "ft:tiny", "tiny"),
    "other": Name("other", "proj-b", "org-b", "other", "other"),
}
ON_DEMAND = Serving("proj-a", "tiny", "org-a", "tiny", "tiny", 0, NOW - 5000, sleep_seconds=SLEEP)
KEPT = replace(ON_DEMAND, min_replicas=2)
AWAKE = Engine(
    id="eng-tiny", version_id="tiny", model="tiny", project_id="proj-a", organization_id="org-a",
    cluster_id="east", engine="builtin", desired=RUNNING, generation=1, put_generation=1,
    adapters=(), created_at=NOW - 5000, urls_at=NOW, sleeps=True,
)  # fmt: skip
ASLEEP = replace(AWAKE, asleep=True)
OTHER = replace(
    AWAKE, id="eng-other", version_id="other", model="other", project_id="proj-b",
    organization_id="org-b", sleeps=False,
)  # fmt: skip


def wants(**ages: float) -> list[WantedVersion]:
    return [
        WantedVersion(model, NAMES[model].engine_version_id, NOW - age, NOW - age - 100)
        for model, age in ages.items()
    ]


def seen(
    engines: Sequence[Engine], *, sleeping: Sequence[str] = ("builtin",), slots: int = 4
) -> View:
    """A machine whose engines do as they are told, but for those that have not started."""
    phases = {True: pb.PHASE_SLEEPING, False: pb.PHASE_RUNNING}
    capacity = pb.Capacity(engines=["builtin"], engine_slots=slots, sleeping_engines=sleeping)
    cluster = pb.Cluster(
        id="east", live=True, shared=True, embedded=True, roles=["engines"], capacity=capacity
    )
    statuses = {
        one.id: pb.WorkloadStatus(
            generation=one.generation, phase=phases[one.asleep],
            endpoint="" if one.asleep else "unix:///e",
        )
        for one in engines
    }  # fmt: skip
    return View(names=NAMES, statuses=statuses, clusters={"east": cluster})


def planned(rows: Rows, view: View, waits: Waits | None = None, most: int = 8) -> EngineChanges:
    numbers = count()
    policy = InferencePolicy("builtin", most, 4, IDLE, 1800)
    return Planner(rows, view, policy, lambda: f"eng-new-{next(numbers)}", waits=waits).plan()


def now_of(engine: Engine, plan: EngineChanges) -> Engine:
    return next((new for old, new in plan.updates if old.id == engine.id), engine)


def decided(engine: Engine, serving: Serving = ON_DEMAND, /, **ages: float) -> Engine:
    rows = Rows(NOW, [engine], wants(**ages), [serving])
    return now_of(engine, planned(rows, seen([engine])))


def test_it_sleeps_once_nobody_has_asked_for_so_long_and_ends_later() -> None:
    assert decided(AWAKE, tiny=SLEEP - 1) == AWAKE
    due = decided(AWAKE, tiny=SLEEP)
    assert (due.asleep, due.generation, due.desired) == (True, 2, RUNNING)
    assert decided(ASLEEP, tiny=IDLE) == ASLEEP
    assert decided(ASLEEP, tiny=IDLE + 1).desired == DELETED


def test_a_request_for_it_or_for_an_adapter_of_it_wakes_it() -> None:
    assert not decided(ASLEEP, tiny=0).asleep
    woken = decided(ASLEEP, **{"tiny": 300.0, "ft:tiny": 0.0})
    assert (woken.asleep, woken.adapters, woken.generation) == (False, ("ft:tiny",), 2)


def test_one_that_waits_for_its_gpu_sleeps_on_once_nobody_asks() -> None:
    view = seen([AWAKE])
    view.statuses[AWAKE.id].CopyFrom(
        pb.WorkloadStatus(generation=1, phase=pb.PHASE_PENDING, reason="WaitingForGpu")
    )
    for age, sleeps in ((SLEEP - 1, False), (SLEEP, True)):
        rows = Rows(NOW, [AWAKE], wants(tiny=age), [ON_DEMAND])
        assert now_of(AWAKE, planned(rows, view)).asleep is sleeps


def test_one_that_is_kept_running_sleeps_as_well_and_does_not_end() -> None:
    kept = replace(ASLEEP, replica=1)
    rows = Rows(NOW, [AWAKE, replace(kept, id="eng-2")], wants(tiny=5000.0), [KEPT])
    plan = planned(rows, seen(rows.engines))
    assert [(old.id, new.asleep, new.desired) for old, new in plan.updates] == [
        ("eng-tiny", True, RUNNING)
    ]
    young = replace(AWAKE, created_at=NOW - SLEEP + 1)
    assert not decided(young, replace(KEPT, min_replicas=1)).asleep, "it has just come up"


def test_one_that_has_not_answered_yet_goes_on_starting() -> None:
    view = seen([AWAKE])
    view.statuses["eng-tiny"].phase = pb.PHASE_STARTING
    rows = Rows(NOW, [AWAKE], wants(tiny=SLEEP), [ON_DEMAND])
    assert not planned(rows, view).updates


def test_the_setting_replaces_engines_that_have_to_be_told_at_their_start_alone() -> None:
    off = replace(ON_DEMAND, sleep_seconds=0)
    plain = replace(AWAKE, sleeps=False)
    assert decided(plain, tiny=0.0) == plain
    due = decided(plain, tiny=SLEEP)
    assert (due.sleeps, due.asleep, due.generation) == (True, True, 2)
    assert decided(AWAKE, off, tiny=300.0) == AWAKE
    woken = decided(ASLEEP, off, tiny=300.0)
    assert (woken.sleeps, woken.asleep, woken.desired) == (True, False, RUNNING)
    # It cannot sleep where it is.
    view = seen([plain], sleeping=())
    rows = Rows(NOW, [plain], wants(tiny=SLEEP), [ON_DEMAND])
    assert not planned(rows, view).updates

    told, vllm = replace(plain, engine="vllm"), replace(ON_DEMAND, engine="vllm")
    rows = Rows(NOW, [told], wants(tiny=0.0), [vllm])
    view = seen([told], sleeping=["vllm"])
    view.clusters["east"].capacity.engines.append("vllm")
    (beside,) = planned(rows, view).creates
    assert (beside.sleeps, beside.asleep, beside.replica) == (True, False, 1)
    # Nobody would miss one that sleeps.
    asleep = replace(told, sleeps=True, asleep=True)
    rows = Rows(NOW, [asleep], wants(tiny=100.0), [replace(vllm, sleep_seconds=0)])
    plan = planned(rows, replace(view, statuses=seen([asleep]).statuses))
    assert now_of(asleep, plan).desired == DELETED
    assert [(one.sleeps, one.asleep, one.replica) for one in plan.creates] == [(False, False, 0)]


def test_other_arguments_end_one_that_sleeps() -> None:
    assert decided(ASLEEP, replace(ON_DEMAND, gpus=1), tiny=300.0) == ASLEEP, "nowhere to go"
    changed = replace(ASLEEP, nodes=2)
    assert decided(changed, tiny=300.0).desired == DELETED


def test_it_starts_only_where_engines_can_sleep_and_says_so() -> None:
    rows = Rows(NOW, [], wants(tiny=0.0), [ON_DEMAND])
    assert planned(rows, seen([])).creates
    plan = planned(rows, seen([], sleeping=()))
    assert not plan.creates
    assert "lets engines of the kind 'builtin' sleep" in plan.errors[0][1]


def test_routes_leave_it_out_before_its_agent_has_heard() -> None:
    answers = pb.WorkloadStatus(phase=pb.PHASE_RUNNING, endpoint="unix:///e", generation=1)
    view = seen([ASLEEP])
    view.statuses["eng-tiny"].CopyFrom(answers)
    rows = Rows(NOW, [ASLEEP], wants(tiny=SLEEP), [ON_DEMAND])
    assert not routes_of(rows, view, "builtin")["tiny"].endpoints
    rows = Rows(NOW, [ASLEEP], wants(tiny=SLEEP), [ON_DEMAND])
    assert routes_of(rows, seen([ASLEEP]), "builtin")["tiny"].waits_for == (
        "sleeping until somebody asks"
    )
    woken = replace(ASLEEP, asleep=False, generation=2)
    rows = Rows(NOW, [woken], wants(tiny=0.0), [ON_DEMAND])
    assert routes_of(rows, seen([ASLEEP]), "builtin")["tiny"].waits_for == "waking the engine"


def test_it_yields_first_where_all_engines_are_taken() -> None:
    # The other was asked for longer ago, but answers.
    idle = replace(AWAKE, id="eng-idle", version_id="ft:tiny", sleeps=False)
    names = {**NAMES, "ft:tiny": Name("ft:tiny", "proj-a", "org-a", "ft:tiny", "ft:tiny")}
    engines = [ASLEEP, idle]
    rows = Rows(NOW, engines, wants(**{"tiny": 100.0, "ft:tiny": 300.0, "other": 0.0}), [ON_DEMAND])
    view = replace(seen(engines), names=names)
    plan = planned(rows, view, most=2)
    assert now_of(ASLEEP, plan).desired == DELETED
    assert now_of(idle, plan) == idle
    assert [one.model for one in plan.creates] == ["other"]


def test_what_nobody_asks_for_lets_it_sleep() -> None:
    kept = replace(KEPT, min_replicas=1)
    other = Serving("proj-b", "other", "org-b", "other", "other", 1, NOW - 5000)
    rows = Rows(NOW, [ASLEEP], [], [kept, other])
    plan = planned(rows, seen([ASLEEP]), most=1)
    assert (plan.updates, plan.creates) == ([], [])


def test_it_ends_for_one_that_waits_for_a_place_of_its_machine_one_at_a_time() -> None:
    second = replace(ASLEEP, id="eng-2", replica=1)
    engines, waits = [ASLEEP, second, OTHER], Waits()
    view = seen(engines)
    view.statuses["eng-other"].phase = pb.PHASE_PENDING
    rows = Rows(NOW, engines, wants(tiny=100.0, other=0.0), [KEPT])

    def ended(after: float) -> list[str]:
        plan = planned(replace(rows, now=NOW + after), view, waits)
        gone = [old.id for old, new in plan.updates if new.desired == DELETED]
        engines[:] = [one for one in engines if one.id not in gone]
        return gone

    assert ended(0.0) == []
    assert ended(PLACE_SECONDS) == []
    assert ended(PLACE_SECONDS + 1) == ["eng-2"]
    assert ended(PLACE_SECONDS + 2) == [], "that one needs a moment to go"
    assert ended(2 * PLACE_SECONDS + 2) == ["eng-tiny"]


def test_one_ends_for_each_failure_for_memory_and_starts_anew_after_what_failed() -> None:
    sleepers = [replace(ASLEEP, id=f"eng-{number}", replica=number) for number in range(3)]
    engines, waits = [*sleepers, OTHER], Waits()
    kept = replace(KEPT, min_replicas=3)

    def round_after(seconds: float, *, fails: bool) -> EngineChanges:
        view = seen(engines)
        status = view.statuses["eng-other"]
        status.phase = pb.PHASE_FAILED if fails else pb.PHASE_STARTING
        status.reason, status.endpoint = "OutOfMemory" if fails else "", ""
        now = NOW + seconds
        want = WantedVersion("other", "other", now, NOW - 100)
        plan = planned(Rows(now, engines, [want], [kept]), view, waits)
        changed = {old.id: new for old, new in plan.updates}
        now_all = [changed.get(one.id, one) for one in engines] + plan.creates
        engines[:] = [one for one in now_all if one.desired == RUNNING]
        return plan

    plan = round_after(0, fails=True)
    again = now_of(OTHER, plan)
    assert (again.failed_at, again.failures, again.generation) == (0.0, 1, 2)
    assert [one.id for one in engines if one.asleep] == ["eng-1", "eng-2"]
    # Its place is promised to the one that begins again.
    assert not plan.creates
    for second in range(1, 5):
        assert not round_after(second, fails=second == 2).creates
        assert len(engines) == 3, "who has just ended may not have been gone"
    assert not round_after(20, fails=False).creates
    assert len(engines) == 3, "it starts"
    round_after(30, fails=True)
    assert [one.id for one in engines if one.asleep] == ["eng-2"]
    # Once it runs, who is kept comes back.
    view = seen(engines)
    rows = Rows(NOW + 40, engines, wants(other=-40.0), [kept])
    assert [one.replica for one in planned(rows, view, waits).creates] == [0, 1]


def test_it_sleeps_on_where_the_cluster_of_the_one_that_waits_is_away() -> None:
    failed = replace(OTHER, failures=1, failed_at=NOW - 50, retry_at=NOW + 50)
    view = seen([ASLEEP, failed])
    view.statuses["eng-other"].phase = pb.PHASE_FAILED
    view.statuses["eng-other"].reason = "OutOfMemory"
    rows = Rows(NOW, [ASLEEP, failed], wants(tiny=100.0, other=0.0), [KEPT])
    assert now_of(ASLEEP, planned(rows, view)).desired == DELETED
    out_of_reach = pb.Cluster(id="east", live=True, shared=True, roles=["engines"])
    for clusters in ({}, {"east": out_of_reach}):
        plan = planned(rows, replace(view, clusters=clusters))
        assert now_of(ASLEEP, plan) == ASLEEP


@pytest.mark.parametrize(
    "asking",
    [
        # A second engine of a busy model, and a new one beside an outdated one.
        Serving("proj-b", "other", "org-b", "other", "other", 2, NOW - 5000),
        Serving("proj-b", "other", "org-b", "other", "other", 1, NOW - 5000, gpus=1),
    ],
)
def test_its_place_is_room_for_one_more_that_is_asked_for(asking: Serving) -> None:
    engines = [ASLEEP, OTHER]
    view = seen(engines, slots=2)
    view.clusters["east"].capacity.gpus = 1
    rows = Rows(NOW, engines, wants(tiny=300.0, other=0.0), [KEPT, asking])
    plan = planned(rows, view)
    assert [(one.model, one.replica) for one in plan.creates] == [("other", 1)]
    assert [old.id for old, new in plan.updates if new.desired == DELETED] == ["eng-tiny"]
    idle = planned(replace(rows, wants=wants(tiny=300.0, other=300.0)), view)
    assert now_of(ASLEEP, idle) == ASLEEP, "what is kept alone lets it sleep"


def test_one_that_sleeps_counts_as_answering_where_another_is_lost() -> None:
    lost = replace(ASLEEP, id="eng-lost", replica=1, cluster_id="west")
    rows = Rows(NOW, [ASLEEP, lost], [], [KEPT])
    assert now_of(lost, planned(rows, seen(rows.engines, slots=1))) == lost, "nobody makes room"
    assert now_of(lost, planned(rows, seen(rows.engines, slots=2))).desired == DELETED


@given(
    st.lists(st.sampled_from([0, 0, 0, 0, 0, 1]), min_size=30, max_size=200),
    st.integers(0, 3),
    st.booleans(),
)
@settings(max_examples=60)
def test_whoever_asks_is_answered_and_nobody_is_cut(
    asks: list[int],
    delay: int,
    keeps: bool,
) -> None:
    """Rounds of ten seconds, in some of which somebody asks; the agent follows some rounds later.

    An engine that is asked for stays awake or wakes at once, and sleeps only after its time.
    """
    serving = replace(KEPT, min_replicas=1) if keeps else ON_DEMAND
    engine, told, used_at, now = AWAKE, [AWAKE], NOW - 10, NOW
    for asked in asks:
        now += 10
        used_at = now if asked else used_at
        want = WantedVersion("tiny", "tiny", used_at, used_at - 100)
        rows = Rows(now, [engine], [want] if now - used_at <= IDLE else [], [serving])
        heard = told[max(0, len(told) - 1 - delay)]
        plan = planned(rows, seen([heard]))
        engine = now_of(engine, plan)
        if engine.desired == DELETED:
            assert not keeps
            assert now - used_at > IDLE
            return
        told.append(engine)
        assert not (engine.asleep and now - used_at < SLEEP)
        if len(told) > delay + 1 and now - used_at >= SLEEP + 10 * (delay + 2):
            assert engine.asleep
