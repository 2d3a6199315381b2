"""Engines that answer, whatever nodes come and go and whatever an estimate says of them."""

from dataclasses import replace
from itertools import count
from typing import Any

import pytest
from tests.unit.inference.planning.test_node_rooms import (
    GIB,
    LARGE,
    NOW,
    POLICY,
    SMALL,
    cluster,
    machine,
    named,
    planned,
    shape,
)

from windlass.api.clusters.v1 import clusters_pb2 as pb
from windlass.inference.domain import Engine, Name, Rows, Serving, View
from windlass.inference.planning import EngineChanges, Planner
from windlass.modelfiles.footprint import Footprint

# By the estimate too large for one GPU of 80 GiB.
TIGHT = replace(LARGE, weight_bytes=72 * GIB)


def started(where: pb.Cluster, model: Footprint = LARGE, **serving: Any) -> Engine:
    """An engine that the planner has started there, and its cluster was told of."""
    (made,) = planned(where, model, **serving).creates
    return replace(made, put_generation=1)


def again(
    where: pb.Cluster, engine: Engine, model: Footprint = LARGE, **serving: Any
) -> EngineChanges:
    """The plan while it answers; the project may have one engine."""
    name = Name("big", "proj-a", "org-a", "big", "big", model)
    told = {"updated_at": NOW - 60} | serving
    wanted = Serving("proj-a", "big", "org-a", "big", "big", 1, **told)
    status = pb.WorkloadStatus(generation=1, phase=pb.PHASE_RUNNING, endpoint="pod://e")
    view = View(names={"big": name}, statuses={engine.id: status}, clusters={"east": where})
    rows = Rows(NOW, [engine], [], [wanted], quotas={"proj-a": 1})
    numbers = count()
    return Planner(rows, view, POLICY, lambda: f"new-{next(numbers)}").plan()


def stays(plan: EngineChanges) -> bool:
    return not (plan.creates or plan.updates)


def test_one_of_before_there_were_estimates_stays() -> None:
    engine = replace(started(cluster(shape(8, 80)), TIGHT), gpus=0)
    assert stays(again(cluster(shape(8, 80)), engine, TIGHT))


def test_one_stays_when_nodes_go() -> None:
    engine = started(cluster(shape(8, 80), shape(8, 24)))
    assert engine.gpus == 8
    assert stays(again(cluster(shape(8, 80)), engine))


def test_one_with_an_accelerator_stays_when_nodes_say_less() -> None:
    where = cluster(named(shape(8, 80), "H100"), engine_gpus=0)
    engine = started(where, accelerator="H100")
    assert engine.gpus == 2
    silent = cluster(named(shape(8, 0), "H100"), engine_gpus=0)
    assert stays(again(silent, engine, accelerator="H100"))
    # Nor does one that does not answer yet get fewer.
    plan = planned(silent, engines=(engine,), accelerator="H100")
    assert not plan.creates
    assert all(changed.gpus == 2 for _, changed in plan.updates)


def test_what_its_serving_says_since_is_done() -> None:
    engine = replace(started(cluster(shape(8, 80))), gpus=8)
    plan = again(cluster(shape(8, 80)), engine, updated_at=NOW + 1)
    assert plan.creates or plan.updates


@pytest.mark.parametrize("where", [machine(500), cluster(shape(8, 80))])
def test_a_priority_restarts_none_where_it_means_nothing(where: pb.Cluster) -> None:
    where.capacity.engine_priorities.append("low")
    engine = started(where, SMALL)
    plan = again(where, engine, SMALL, priority="low")
    assert stays(plan) == (where.executor == "process")


def test_an_accelerator_over_several_nodes_is_one_of_each_at_least() -> None:
    where = cluster(named(shape(8, 80), "H100"), engine_gpus=0)
    assert started(where, accelerator="H100", nodes=2).gpus == 1
