"""Priorities of servings: of a project's engines, which start first and which end first."""

from dataclasses import replace
from itertools import count

from windlass.api.clusters.v1 import clusters_pb2 as pb
from windlass.inference.domain import (
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
POLICY = InferencePolicy("builtin", 2, 4, 6000, 1e9)
EAST = pb.Cluster(
    id="east", live=True, embedded=True, shared=True, roles=["engines"],
    capacity=pb.Capacity(engines=["builtin"], engine_slots=8),
)  # fmt: skip


def planned(
    priorities: dict[str, str],
    engines: list[Engine] | None = None,
    wants: list[WantedVersion] | None = None,
    *,
    kept: int = 1,
    quotas: dict[str, int] | None = None,
) -> EngineChanges:
    """The plan of models of the projects that their names begin with."""
    names = {name: Name(name, f"proj-{name[0]}", "org", name, name) for name in priorities}
    servings = [
        Serving(f"proj-{name[0]}", name, "org", name, name, kept, NOW - 60, priority=priority)
        for name, priority in priorities.items()
    ]
    view = View(names=names, statuses={}, clusters={"east": EAST})
    numbers = count()
    rows = Rows(NOW, engines or [], wants or [], servings, quotas=quotas or {})
    return Planner(rows, view, POLICY, lambda: f"eng-{next(numbers)}").plan()


def test_a_project_starts_what_has_its_highest_priority_first() -> None:
    made = planned({"a1": "low", "a2": "normal", "a3": "high"}).creates
    assert [(one.model, one.priority) for one in made] == [("a3", "high"), ("a2", "normal")]


def test_the_turn_of_another_project_comes_no_later_for_it() -> None:
    made = planned({"a1": "high", "a2": "high", "b1": "low"}).creates
    assert sorted(one.model[0] for one in made) == ["a", "b"]


def engine(name: str, priority: str) -> Engine:
    return Engine(
        f"eng-{name}", name, name, f"proj-{name[0]}", "org", "east", "builtin", "running", 1, 1,
        (), NOW - 900, NOW - 900, priority=priority,
    )  # fmt: skip


def want(name: str, ago: float) -> WantedVersion:
    return WantedVersion(name, name, NOW - ago, NOW - ago)


def test_of_a_projects_idle_engines_that_of_the_lowest_priority_makes_room() -> None:
    priorities = {"a1": "normal", "a2": "low", "a3": "normal"}
    there = [engine("a1", "normal"), engine("a2", "low")]
    asked = [want("a1", 500), want("a2", 100), want("a3", 1)]
    plan = planned(priorities, there, asked, kept=0)
    assert [one.model for one in plan.creates] == ["a3"]
    assert [old.model for old, new in plan.updates if new.desired == "deleted"] == ["a2"]
    # Without a difference it is what was wanted longest ago.
    alike = [replace(one, priority="normal") for one in there]
    plan = planned(dict.fromkeys(priorities, "normal"), alike, asked, kept=0)
    assert [old.model for old, new in plan.updates if new.desired == "deleted"] == ["a1"]


def test_another_projects_engine_makes_room_as_if_there_were_no_priorities() -> None:
    there = [engine("a1", "high"), engine("b1", "low")]
    asked = [want("a1", 500), want("b1", 100), want("c1", 1)]
    plan = planned({"a1": "high", "b1": "low", "c1": "normal"}, there, asked, kept=0)
    assert [old.model for old, new in plan.updates if new.desired == "deleted"] == ["a1"]


def test_of_a_project_beyond_its_quota_the_lowest_priority_ends() -> None:
    low = replace(engine("a1", "low"), created_at=NOW - 900)
    high = replace(engine("a2", "high"), created_at=NOW - 600)
    plan = planned({"a1": "low", "a2": "high"}, [low, high], quotas={"project": 1})
    assert [old.model for old, new in plan.updates if new.desired == "deleted"] == ["a1"]
    # Without a difference it is what came last.
    alike = [replace(one, priority="normal") for one in (low, high)]
    plan = planned(dict.fromkeys(("a1", "a2"), "normal"), alike, quotas={"project": 1})
    assert [old.model for old, new in plan.updates if new.desired == "deleted"] == ["a2"]
