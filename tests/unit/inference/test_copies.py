"""Adapters that the engines of their base do not load are served as merged copies."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import count

import pytest

from windlass.api.clusters.v1 import clusters_pb2 as pb
from windlass.engine_arguments import EngineArguments
from windlass.inference.copies import with_copies
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
from windlass.modelfiles.adapter_traits import AdapterTraits

NOW = 1_000_000.0
DORA = AdapterTraits(8, ("use_dora",))
BASE = Name("tiny", "", "", "tiny", "tiny")
PLAIN = Name("ft:plain", "p", "o", "ft:plain", "tiny", adapter=AdapterTraits(8), is_merged=True)
MERGED = Name("ft:dora", "p", "o", "ft:dora", "tiny", adapter=DORA, is_merged=True)
LONE = Name("ft:lone", "p", "o", "ft:lone", "tiny", adapter=DORA)
UNREAD = Name("ft:old", "p", "o", "ft:old", "tiny", is_merged=True)
ALL = {name.version_id: name for name in (BASE, PLAIN, MERGED, LONE, UNREAD)}
VLLM = Serving(
    "", "tiny", "o", "tiny", "tiny", 0, NOW - 60,
    engine="vllm", arguments=EngineArguments(context_length=512), gpus=1,
)  # fmt: skip
RUNS = Engine(
    id="eng-1", version_id="tiny", model="tiny", project_id="", organization_id="",
    cluster_id="big", engine="vllm", desired=RUNNING, generation=1, put_generation=1,
    adapters=(), created_at=NOW - 100, urls_at=NOW, arguments=VLLM.arguments, gpus=1,
)  # fmt: skip


def seen(servings: Sequence[Serving], engine: str = "builtin") -> View:
    cluster = pb.Cluster(
        id="big", live=True, shared=True, embedded=True, roles=["engines"],
        capacity=pb.Capacity(engines=["builtin", "vllm"], engine_slots=4, gpus=2),
    )  # fmt: skip
    status = pb.WorkloadStatus(generation=1, phase=pb.PHASE_RUNNING, endpoint="unix:///e")
    names = with_copies(ALL, servings, engine)
    return View(names=names, statuses={"eng-1": status}, clusters={"big": cluster})


def rows(*versions: str, servings: Sequence[Serving] = (VLLM,)) -> Rows:
    wants = [WantedVersion(version, "tiny", NOW, NOW - 30) for version in versions]
    return Rows(NOW, [RUNS], wants, servings)


def planned(state: Rows) -> EngineChanges:
    numbers = count()
    policy = InferencePolicy("builtin", 8, 4, 600, 1800)
    view = seen(state.servings)
    return Planner(state, view, policy, lambda: f"eng-new-{next(numbers)}").plan()


@pytest.mark.parametrize(
    ("servings", "engine", "own"),
    [
        ([], "builtin", set[str]()),
        ([], "llamacpp", {"ft:dora"}),
        ([VLLM], "builtin", {"ft:dora"}),
        ([replace(VLLM, engine="builtin", arguments=EngineArguments())], "vllm", set[str]()),
    ],
)
def test_only_what_is_not_loaded_has_engines_of_its_own(
    servings: list[Serving], engine: str, own: set[str]
) -> None:
    names = with_copies(ALL, servings, engine)
    assert {version for version, name in names.items() if name.copied_from} == own
    assert all(names[version].engine_version_id == version for version in own)


def test_a_rank_beyond_the_engines_is_not_loaded() -> None:
    high = {"tiny": BASE, "ft:high": replace(PLAIN, adapter=AdapterTraits(128))}
    assert with_copies(high, [VLLM], "builtin")["ft:high"].copied_from == "tiny"
    roomy = replace(VLLM, arguments=EngineArguments(max_adapter_rank=128))
    assert not with_copies(high, [roomy], "builtin")["ft:high"].copied_from


def test_a_copy_gets_an_engine_as_its_base_has_them() -> None:
    changes = planned(rows("tiny", "ft:plain", "ft:dora"))
    (made,) = changes.creates
    assert (made.version_id, made.model, made.project_id) == ("ft:dora", "ft:dora", "p")
    assert (made.engine, made.gpus, made.arguments.context_length) == ("vllm", 1, 512)
    assert made.adapters == ()
    ((_, revised),) = changes.updates
    assert revised.adapters == ("ft:plain",)


def test_an_engine_is_not_told_to_load_what_it_does_not() -> None:
    changes = planned(rows("tiny", "ft:lone", "ft:old"))
    assert not changes.creates
    ((_, revised),) = changes.updates
    assert revised.adapters == ("ft:old",), "of which nobody knows"


def test_a_route_says_whose_engines_answer_or_what_would_help() -> None:
    state = rows("tiny", "ft:plain", "ft:dora", "ft:lone")
    routes = routes_of(state, seen(state.servings), "builtin")
    assert {key: route.engine_version_id for key, route in routes.items()} == {
        "tiny": "tiny", "ft:plain": "tiny", "ft:dora": "ft:dora", "ft:lone": "tiny"
    }  # fmt: skip
    assert {route.engine for route in routes.values()} == {"vllm"}
    assert routes["ft:dora"].waits_for == "waiting for a place for the engine"
    assert "it is a DoRA adapter" in routes["ft:lone"].error
    assert "--export merged" in routes["ft:lone"].error


def test_an_engine_of_a_copy_ends_once_the_copy_is_gone() -> None:
    own = replace(RUNS, id="eng-2", version_id="ft:lone", model="ft:lone", project_id="p")
    state = replace(rows("ft:lone"), engines=[RUNS, own])
    (gone,) = [new for old, new in planned(state).updates if old.id == "eng-2"]
    assert gone.desired != RUNNING
