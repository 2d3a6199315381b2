"""Kinds and arguments of engines: which a model gets, where, and what a change of them does."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import count

import pytest

from windlass.api.clusters.v1 import clusters_pb2 as pb
from windlass.engine_arguments import EngineArguments
from windlass.inference.domain import (
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
from windlass.inference.routing import routes_of
from windlass.modelfiles.formats import Formats

NOW = 1_000_000.0
NAMES = {
    "tiny": Name("tiny", "proj-a", "org-a", "tiny", "tiny"),
    "ft:tiny": Name("ft:tiny", "proj-a", "org-a", "ft:tiny", "tiny"),
}
LONG = EngineArguments(context_length=8192)
OWN = Serving(
    "proj-a", "tiny", "org-a", "tiny", "tiny", 1, NOW - 60, engine="vllm", arguments=LONG, gpus=2
)
ON_DEMAND = replace(OWN, min_replicas=0)
RUNS = Engine(
    id="eng-1", version_id="tiny", model="tiny", project_id="proj-a", organization_id="org-a",
    cluster_id="plain", engine="builtin", desired=RUNNING, generation=1, put_generation=1,
    adapters=(), created_at=NOW - 100, urls_at=NOW,
)  # fmt: skip
KINDS = {"plain": ("builtin",), "big": ("builtin", "vllm")}
GPUS = {"big": 4, "huge": 8}


def view(
    kinds: dict[str, tuple[str, ...]],
    answering: Sequence[Engine] = (),
    grouped: Sequence[str] = (),
) -> View:
    clusters = {
        name: pb.Cluster(
            id=name, live=True, shared=True, embedded=True, roles=["engines"],
            capacity=pb.Capacity(
                engines=engines, engine_slots=4, gpus=GPUS.get(name, 0),
                grouped_engines=["vllm"] if name in grouped else [],
            ),
        )
        for name, engines in kinds.items()
    }  # fmt: skip
    statuses = {
        engine.id: pb.WorkloadStatus(
            generation=engine.generation, phase=pb.PHASE_RUNNING, endpoint="unix:///e"
        )
        for engine in answering
    }
    return View(names=NAMES, statuses=statuses, clusters=clusters)


def planned(
    servings: Sequence[Serving],
    running: Sequence[Engine] = (),
    *,
    wanted: str = "",
    kinds: dict[str, tuple[str, ...]] = KINDS,
    answering: Sequence[Engine] = (),
    grouped: Sequence[str] = (),
) -> EngineChanges:
    wants = [WantedVersion(wanted, "tiny", NOW, NOW - 30)] if wanted else []
    rows = Rows(NOW, running, wants, servings)
    numbers = count()
    policy = InferencePolicy("builtin", 8, 4, 600, 1800)
    seen = view(kinds, answering, grouped)
    return Planner(rows, seen, policy, lambda: f"eng-new-{next(numbers)}").plan()


def test_an_engine_is_of_the_kind_that_its_model_asks_for_where_that_is() -> None:
    (made,) = planned([OWN]).creates
    assert (made.engine, made.arguments, made.gpus) == ("vllm", LONG, 2)
    assert made.cluster_id == "big"
    (plain,) = planned([], wanted="tiny").creates
    assert (plain.engine, plain.arguments, plain.gpus) == ("builtin", EngineArguments(), 0)


def test_what_is_served_on_demand_starts_by_a_request_alone() -> None:
    assert not planned([ON_DEMAND]).creates
    assert not planned([ON_DEMAND]).ended
    (made,) = planned([ON_DEMAND], wanted="ft:tiny").creates
    assert (made.engine, made.adapters) == ("vllm", ("ft:tiny",))


def test_an_engine_that_nothing_could_take_over_goes_on() -> None:
    plan = planned([OWN], [RUNS], kinds={"plain": ("builtin",)})
    assert not plan.updates
    assert not plan.creates


def test_a_kind_that_no_cluster_has_is_named() -> None:
    ((_, error),) = planned([OWN], kinds={"plain": ("builtin",)}).errors
    assert error == "No live cluster has the engine 'vllm'."


def test_an_engine_goes_where_enough_gpus_are() -> None:
    kinds: dict[str, tuple[str, ...]] = dict.fromkeys(("a-small", "big", "huge"), ("vllm",))
    (made,) = planned([replace(OWN, gpus=8)], kinds=kinds).creates
    assert made.cluster_id == "huge"
    ((_, error),) = planned([replace(OWN, gpus=16)], kinds=kinds).errors
    assert error == "Each engine should have 16 GPUs; the largest live cluster has 8."


def test_an_engine_on_several_nodes_goes_where_groups_are() -> None:
    kinds: dict[str, tuple[str, ...]] = dict.fromkeys(("big", "huge"), ("vllm",))
    own = replace(OWN, nodes=2, gpus=4)
    ((_, error),) = planned([own], kinds=kinds).errors
    assert error == (
        "No live cluster runs the engine 'vllm' on 2 nodes together: that takes Kubernetes with "
        "LeaderWorkerSet."
    )
    (made,) = planned([own], kinds=kinds, grouped=("big", "huge")).creates
    assert (made.cluster_id, made.nodes, made.gpus) == ("huge", 2, 4), "GPUs are those of each"
    ((_, error),) = planned([own], kinds=kinds, grouped=("big",)).errors
    assert "is reachable and assigned" in error
    ((_, error),) = planned([replace(own, gpus=8)], kinds=kinds, grouped=("huge",)).errors
    assert error == "Each engine should have 16 GPUs; the largest live cluster has 8."


def test_another_number_of_nodes_means_another_engine() -> None:
    (made,) = planned([OWN]).creates
    old = replace(made, id="eng-1", created_at=NOW - 100)
    assert not planned([replace(OWN, nodes=1)], [old], answering=[old]).creates
    plan = planned([replace(OWN, nodes=2)], [old], answering=[old], grouped=("big",))
    assert [one.nodes for one in plan.creates] == [2]


def test_a_route_says_which_kind_would_answer_before_one_does() -> None:
    rows = Rows(NOW, [], [WantedVersion("ft:tiny", "tiny", NOW, NOW)], [ON_DEMAND])
    routes = routes_of(rows, view(KINDS), "builtin")
    assert {name: route.engine for name, route in routes.items()} == {
        "tiny": "vllm", "ft:tiny": "vllm"
    }  # fmt: skip
    routes = routes_of(Rows(NOW, [RUNS], []), view(KINDS), "builtin")
    assert routes["tiny"].engine == "builtin"


def test_a_route_is_of_the_kind_that_answers() -> None:
    old, new = RUNS, replace(RUNS, id="eng-2", replica=1, engine="vllm")
    rows = Rows(NOW, [old, new], [], [OWN])
    for answering, kind, ids in (
        ([old], "builtin", ["eng-1"]),
        ([old, new], "vllm", ["eng-2"]),
        ([], "vllm", []),
    ):
        route = routes_of(rows, view(KINDS, answering), "builtin")["tiny"]
        assert (route.engine, [one.engine_id for one in route.endpoints]) == (kind, ids)


def test_a_preset_says_what_its_owner_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    given = EngineArguments(context_length=100, dtype="float32", tool_parser="mine")
    name = replace(
        NAMES["tiny"],
        formats=Formats("hermes", "qwen3"),
        task="embed",
        preset="family",
        preset_arguments=(("vllm", given),),
    )
    monkeypatch.setitem(NAMES, "tiny", name)
    (engine,) = planned([OWN]).creates
    assert engine.arguments == EngineArguments(
        context_length=8192,
        dtype="float32",
        tool_parser="mine",
        reasoning_parser="qwen3",
        task="embed",
    )
    (other,) = planned([replace(OWN, engine="builtin", gpus=0)]).creates
    assert other.arguments == LONG, "of another kind it says nothing"
