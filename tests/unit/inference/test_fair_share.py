"""Engines are shared between projects: who yields, and who comes first."""

from collections.abc import Mapping, Sequence
from itertools import count

import pytest

from windlass.api.clusters.v1 import clusters_pb2 as pb
from windlass.inference.domain import (
    DELETED,
    RUNNING,
    Engine,
    InferencePolicy,
    Name,
    Rows,
    View,
    WantedVersion,
)
from windlass.inference.planning import EngineChanges, Planner
from windlass.inference.planning.round import Round

NOW = 1_000_000.0
POLICY = InferencePolicy(
    engine="builtin", max_engines=4, max_adapters=2, idle_seconds=600, url_seconds=1800
)


def planned(
    running: Mapping[str, float],
    wanted: Sequence[tuple[str, float, float]],
    quotas: Mapping[str, int] | None = None,
) -> EngineChanges:
    """The plan of a round; models are named `project/number`.

    `running` has the seconds since each engine's model was wanted, `wanted` the models without
    an engine, since when they are wanted, and when they were last.
    """
    ages = {model: (age, age) for model, age in running.items()}
    ages |= {model: (since, used) for model, since, used in wanted}
    names = {
        model: Name(model, model.split("/")[0], f"org-{model[0]}", model, model) for model in ages
    }
    engines = [
        Engine(
            id=f"eng-{model}",
            version_id=model,
            model=model,
            project_id=names[model].project_id,
            organization_id=names[model].organization_id,
            cluster_id="east",
            engine="builtin",
            desired=RUNNING,
            generation=1,
            put_generation=1,
            adapters=(),
            created_at=NOW - 100,
            urls_at=NOW,
        )
        for model in running
    ]
    wants = [
        WantedVersion(model, model, used_at=NOW - used, since=NOW - since)
        for model, (since, used) in ages.items()
    ]
    capacity = pb.Capacity(engines=["builtin"])
    cluster = pb.Cluster(
        id="east", live=True, shared=True, embedded=True, roles=["engines"], capacity=capacity
    )
    rows = Rows(now=NOW, engines=engines, wants=wants, quotas=quotas or {})
    numbers = count()
    view = View(names=names, statuses={}, clusters={"east": cluster})
    return Planner(rows, view, POLICY, lambda: f"eng-new-{next(numbers)}").plan()


def made(plan: EngineChanges) -> list[str]:
    return [engine.model for engine in plan.creates]


def ended(plan: EngineChanges) -> list[str]:
    return [old.model for old, new in plan.updates if new.desired == DELETED]


def test_an_idle_engine_of_the_greedy_project_yields_first() -> None:
    running = {"b/1": 100.0, "a/1": 30.0, "a/2": 40.0, "a/3": 20.0}
    plan = planned(running, [("c/1", 0, 0)])
    assert (made(plan), ended(plan)) == (["c/1"], ["a/2"]), "not b's, which is idle for longer"


def test_a_project_with_none_comes_before_anothers_fourth() -> None:
    plan = planned({"a/1": 1.0, "a/2": 1.0, "a/3": 1.0}, [("a/4", 5, 0), ("b/1", 5, 3)])
    assert made(plan) == ["b/1"], "though a's wish is the newer"
    assert not ended(plan)


def test_a_busy_engine_of_the_greedy_project_yields_to_one_that_waits_without_any() -> None:
    running = {f"a/{number}": float(number) for number in range(1, 5)}
    assert not made(planned(running, [("b/1", 5, 0)])), "it may yet become idle"
    plan = planned(running, [("b/1", 11, 0)])
    assert (made(plan), ended(plan)) == (["b/1"], ["a/4"])
    # One each is fair: nobody yields a busy one.
    even = {f"{project}/1": 1.0 for project in "acde"}
    assert not made(planned(even, [("b/1", 30, 0)]))
    # Whoever has one waits for an idle one, as before.
    mixed = {"a/1": 1.0, "a/2": 1.0, "a/3": 1.0, "b/1": 1.0}
    assert not made(planned(mixed, [("b/2", 30, 0)]))


def test_a_quota_of_engines_is_kept_while_others_are_free() -> None:
    plan = planned({"a/1": 1.0, "a/2": 1.0}, [("a/3", 30, 0), ("b/1", 30, 0)], {"a": 2})
    assert made(plan) == ["b/1"]
    assert [error for _, error in plan.errors if error] == [
        "The project's 2 engines are in use, which is its quota."
    ]
    # An idle one of its own makes room, not another's.
    plan = planned({"a/1": 40.0, "a/2": 1.0, "b/1": 500.0}, [("a/3", 1, 0)], {"project": 2})
    assert (made(plan), ended(plan)) == (["a/3"], ["a/1"])
    plan = planned({"a/1": 1.0, "a/2": 1.0}, [("a/3", 30, 0)], {"org-a": 2})
    assert not made(plan)


def test_engines_within_their_bounds_are_counted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    calls, counted = [0], Round.counted

    def seen(state: Round) -> list[Engine]:
        calls[0] += 1
        return counted(state)

    monkeypatch.setattr(Round, "counted", seen)
    rounds = []
    for number in (2, 4):
        calls[0] = 0
        # Nobody has asked for long, and each could be ended.
        plan = planned({f"a/{one}": 550.0 for one in range(number)}, [], quotas={"project": 4})
        assert not plan.updates
        rounds.append(calls[0])
    assert rounds[0] == rounds[1]


def test_bounds_that_are_lower_now_end_what_is_beyond_each() -> None:
    running = {f"{project}/{one}": 550.0 for project in "ab" for one in range(2)}
    plan = planned(running, [], quotas={"project": 2, "a": 1})
    assert [old.project_id for old, new in plan.updates if new.desired == DELETED] == ["a"]
    plan = planned(running | {"c/0": 550.0}, [])
    assert len([new for _, new in plan.updates if new.desired == DELETED]) == 1, "of five, four may"
