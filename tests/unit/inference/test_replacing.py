"""Engines whose settings change: new ones come up beside the old, which go one after the other."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import count
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from windlass.api.clusters.v1 import clusters_pb2 as pb
from windlass.engine_arguments import EngineArguments
from windlass.inference.domain import (
    DELETED,
    RUNNING,
    Engine,
    InferencePolicy,
    Name,
    Rows,
    Serving,
    View,
)
from windlass.inference.planning import EngineChanges, Planner
from windlass.inference.planning.replacing import ROOM_SECONDS

NOW = 1_000_000.0
NAMES = {"tiny": Name("tiny", "proj-a", "org-a", "tiny", "tiny")}
OLD, NEW = EngineArguments(context_length=512), EngineArguments(context_length=1024)


def serving(replicas: int = 1, arguments: EngineArguments = NEW) -> Serving:
    return Serving(
        "proj-a", "tiny", "org-a", "tiny", "tiny", replicas, NOW - 60, arguments=arguments
    )


def engine(number: int, arguments: EngineArguments = OLD, *, replica: int | None = None) -> Engine:
    return Engine(
        id=f"eng-{number}", version_id="tiny", model="tiny", project_id="proj-a",
        organization_id="org-a", cluster_id="east", engine="builtin", desired=RUNNING,
        generation=1, put_generation=1, adapters=(), created_at=NOW - 100, urls_at=NOW,
        replica=number if replica is None else replica, arguments=arguments,
    )  # fmt: skip


def planned(
    wanted: Serving,
    running: Sequence[Engine],
    phases: dict[str, Any],
    *,
    slots: int = 4,
    now: float = NOW,
    prefix: str = "new",
) -> EngineChanges:
    statuses = {
        one.id: pb.WorkloadStatus(
            generation=one.generation,
            phase=phases.get(one.id, pb.PHASE_STARTING),
            endpoint="unix:///e" if phases.get(one.id) == pb.PHASE_RUNNING else "",
        )
        for one in running
    }
    cluster = pb.Cluster(
        id="east", live=True, shared=True, embedded=True, roles=["engines"],
        capacity=pb.Capacity(engines=["builtin"], engine_slots=slots),
    )  # fmt: skip
    numbers = count()
    view = View(names=NAMES, statuses=statuses, clusters={"east": cluster})
    rows = Rows(now, running, [], [wanted])
    return Planner(rows, view, POLICY, lambda: f"{prefix}-{next(numbers)}").plan()


POLICY = InferencePolicy("builtin", 8, 4, 600, 1e9)


def applied(running: Sequence[Engine], plan: EngineChanges) -> list[Engine]:
    """The engines that run then, written in the order of the plan, no two in one place."""
    engines = {one.id: one for one in running}
    for before, after in plan.updates:
        assert engines[before.id] == before
        engines[before.id] = after
        places = [one.replica for one in engines.values() if one.desired == RUNNING]
        assert len(places) == len(set(places))
    engines |= {one.id: one for one in plan.creates}
    return [one for one in engines.values() if one.desired == RUNNING]


def test_a_new_engine_comes_up_before_the_old_one_ends() -> None:
    old = engine(0)
    plan = planned(serving(), [old], {old.id: pb.PHASE_RUNNING})
    assert not plan.updates
    (new,) = plan.creates
    assert (new.arguments, new.replica) == (NEW, 1)
    starting = {old.id: pb.PHASE_RUNNING, new.id: pb.PHASE_STARTING}
    plan = planned(serving(), [old, new], starting)
    assert not plan.updates
    assert not plan.creates
    both = {old.id: pb.PHASE_RUNNING, new.id: pb.PHASE_RUNNING}
    plan = planned(serving(), [old, new], both)
    assert [(one.id, one.desired, one.replica) for _, one in plan.updates] == [
        (old.id, DELETED, 0), (new.id, RUNNING, 0)
    ]  # fmt: skip
    (left,) = applied([old, new], plan)
    # It is the same to its cluster: nothing to tell.
    assert left.generation == left.put_generation + 1 == 1
    assert not planned(serving(), [left], both).updates


def test_one_that_cannot_start_leaves_the_old_ones_alone() -> None:
    old, new = engine(0), engine(1, NEW)
    phases = {old.id: pb.PHASE_RUNNING, new.id: pb.PHASE_FAILED}
    ((_, failed),) = planned(serving(), [old, new], phases).updates
    assert (failed.id, failed.desired, bool(failed.failed_at)) == (new.id, RUNNING, True)
    # What was set before is what it should be again, so nothing is to be replaced.
    ((_, gone),) = planned(serving(arguments=OLD), [old, failed], phases).updates
    assert (gone.id, gone.desired) == (new.id, DELETED)


def test_other_arguments_meanwhile_begin_the_replacement_anew() -> None:
    old, new = engine(0), engine(1, NEW)
    other = EngineArguments(context_length=2048)
    phases = {old.id: pb.PHASE_RUNNING, new.id: pb.PHASE_STARTING}
    plan = planned(serving(arguments=other), [old, new], phases)
    ((_, gone),) = plan.updates
    assert (gone.id, gone.desired) == (new.id, DELETED)
    (again,) = plan.creates
    assert (again.arguments, again.replica) == (other, 1)


def test_where_no_place_is_free_old_ones_make_room_one_after_the_other() -> None:
    old = [engine(0), engine(1)]
    running = {one.id: pb.PHASE_RUNNING for one in old}
    plan = planned(serving(2), old, running, slots=2)
    ((before, _),) = plan.updates
    (new,) = plan.creates
    assert new.replica == before.replica
    left = applied(old, plan)
    assert not planned(serving(2), left, running, slots=2).updates, "until the new one answers"
    running[new.id] = pb.PHASE_RUNNING
    assert len(planned(serving(2), left, running, slots=2).updates) == 1


def test_those_that_answer_nobody_end_at_once() -> None:
    old = [engine(0), engine(1)]
    plan = planned(serving(2), old, {})
    assert [one.desired for _, one in plan.updates] == [DELETED, DELETED]
    assert [one.replica for one in plan.creates] == [0, 1]


def test_one_that_its_cluster_does_not_start_gets_the_room_of_an_old_one() -> None:
    old, new = engine(0), replace(engine(1, NEW), created_at=NOW)
    phases = {old.id: pb.PHASE_RUNNING, new.id: pb.PHASE_PENDING}
    assert not planned(serving(), [old, new], phases, now=NOW + ROOM_SECONDS).updates
    plan = planned(serving(), [old, new], phases, now=NOW + ROOM_SECONDS + 1)
    (left,) = applied([old, new], plan)
    assert (left.id, left.replica) == (new.id, 0)


@given(st.data(), st.integers(1, 3), st.integers(1, 5))
@settings(max_examples=200)
def test_whatever_happens_all_engines_are_as_they_should_be_in_the_end(
    data: st.DataObject, replicas: int, slots: int
) -> None:
    slots = max(slots, replicas)
    running = [engine(number) for number in range(replicas)]
    phases: dict[str, Any] = {one.id: pb.PHASE_RUNNING for one in running}
    wanted = serving(replicas)
    for step in range(40):
        plan = planned(wanted, running, phases, slots=slots, prefix=f"new-{step}")
        running = applied(running, plan)
        assert len(running) <= slots
        answering = [one for one in running if phases.get(one.id) == pb.PHASE_RUNNING]
        # One fewer where there is no room for one more.
        assert len(answering) >= replicas - (slots == replicas)
        if step < 8 and data.draw(st.booleans()):
            wanted = serving(replicas, data.draw(st.sampled_from([OLD, NEW])))
        for one in running:
            if step > 20 or data.draw(st.booleans()):
                phases[one.id] = pb.PHASE_RUNNING
    assert {one.arguments for one in running} == {wanted.arguments}
    assert sorted(one.replica for one in running) == list(range(replicas))
