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


def seen(servings: Sequence[Serving], **statuses: pb.WorkloadStatus) -> View:
    cluster = pb.Cluster(
        id="big", live=True, shared=True, embedded=True, roles=["engines"],
        capacity=pb.Capacity(engines=["builtin", "vllm"], engine_slots=4, gpus=2),
    )  # fmt: skip
    status = pb.WorkloadStatus(generation=1, phase=pb.PHASE_RUNNING, endpoint="unix:///e")
    names = with_copies(ALL, servings, "builtin")
    told = {"eng-1": status} | {key.replace("_", "-"): one for key, one in statuses.items()}
    return View(names=names, statuses=told, clusters={"big": cluster})


def rows(*versions: str, servings: Sequence[Serving] = (VLLM,)) -> Rows:
    wants = [WantedVersion(version, "tiny", NOW, NOW - 30) for version in versions]
    return Rows(NOW, [RUNS], wants, servings)


def answering(*adapters: str) -> pb.WorkloadStatus:
    loaded = [pb.LoadedAdapter(id=one, version_id=one) for one in adapters]
    return pb.WorkloadStatus(
        generation=1, phase=pb.PHASE_RUNNING, endpoint="unix:///e", adapters=loaded
    )


def planned(state: Rows, **statuses: pb.WorkloadStatus) -> EngineChanges:
    numbers = count()
    policy = InferencePolicy("builtin", 8, 4, 600, 1800)
    view = seen(state.servings, **statuses)
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
    assert {version for version, name in names.items() if name.base_version_id} == own
    assert all(names[version].engine_version_id == version for version in own)


def test_a_rank_beyond_the_engines_is_not_loaded() -> None:
    high = {"tiny": BASE, "ft:high": replace(PLAIN, adapter=AdapterTraits(128))}
    assert with_copies(high, [VLLM], "builtin")["ft:high"].base_version_id == "tiny"
    roomy = replace(VLLM, arguments=EngineArguments(max_adapter_rank=128))
    assert not with_copies(high, [roomy], "builtin")["ft:high"].base_version_id


def test_a_preset_says_the_rank_where_the_serving_does_not() -> None:
    def names(preset: int, rank: int, *servings: Serving) -> dict[str, Name]:
        said = (("vllm", EngineArguments(max_adapter_rank=preset)),)
        base = replace(BASE, preset_arguments=said)
        plain = replace(PLAIN, adapter=AdapterTraits(rank))
        lone = replace(plain, version_id="ft:lone", is_merged=False)
        return with_copies({"tiny": base, "ft:plain": plain, "ft:lone": lone}, servings, "vllm")

    roomy = names(128, 128)
    assert not roomy["ft:plain"].base_version_id
    assert not roomy["ft:lone"].refused
    for servings in ((), (VLLM,)):
        narrow = names(16, 32, *servings)
        assert narrow["ft:plain"].base_version_id == "tiny"
        assert narrow["ft:lone"].refused
    own = replace(VLLM, arguments=EngineArguments(max_adapter_rank=32))
    assert not names(16, 32, own)["ft:lone"].refused


def test_engines_on_several_nodes_load_none() -> None:
    names = with_copies(ALL, [replace(VLLM, nodes=2)], "builtin")
    copied = {version for version, name in names.items() if name.base_version_id}
    assert copied == {"ft:plain", "ft:dora", "ft:old"}, "also one whose traits nobody knows"
    assert names["ft:lone"].refused == "engines on several nodes load none"
    assert not names["tiny"].refused


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


def test_nothing_starts_for_an_adapter_that_nobody_loads() -> None:
    state = replace(rows("ft:lone"), engines=[])
    changes = planned(state)
    assert not changes.creates
    assert not changes.dropped, "its route says why for as long as somebody asks"
    route = routes_of(state, seen(state.servings), "builtin")["ft:lone"]
    assert "--export merged" in route.error
    late = replace(state, now=NOW + 1000)
    assert [want.version_id for want in planned(late).dropped] == ["ft:lone"]
    kept = Serving("p", "ft:lone", "o", "ft:lone", "tiny", 1, NOW - 60)
    assert not planned(replace(state, wants=[], servings=[VLLM, kept])).creates


def test_engines_that_load_it_answer_until_its_copy_does() -> None:
    """The base is served by the built-in engine, and shall be by vLLM."""
    old = replace(RUNS, engine="builtin", adapters=("ft:dora",), arguments=EngineArguments())
    state = replace(rows("tiny", "ft:dora"), engines=[old])
    loaded = answering("ft:dora")
    changes = planned(state, eng_1=loaded)
    assert {one.version_id for one in changes.creates} >= {"ft:dora"}
    assert not [new for old, new in changes.updates if "ft:dora" not in new.adapters]
    route = routes_of(state, seen(state.servings, eng_1=loaded), "builtin")["ft:dora"]
    assert [one.engine_id for one in route.endpoints] == ["eng-1"]
    assert (route.engine, route.engine_version_id, route.error) == ("builtin", "tiny", "")
    own = replace(RUNS, id="eng-2", version_id="ft:dora", model="ft:dora", project_id="p")
    state = replace(state, engines=[old, own])
    statuses = {"eng_1": loaded, "eng_2": answering()}
    route = routes_of(state, seen(state.servings, **statuses), "builtin")["ft:dora"]
    assert [one.engine_id for one in route.endpoints] == ["eng-2"]
    (revised,) = [new for row, new in planned(state, **statuses).updates if row.id == "eng-1"]
    assert not revised.adapters


def test_its_copy_answers_until_engines_that_load_it_do() -> None:
    """The base is served by vLLM, and shall be by the built-in engine."""
    plain = replace(VLLM, engine="builtin", arguments=EngineArguments(), gpus=0, min_replicas=1)
    own = replace(RUNS, id="eng-2", version_id="ft:dora", model="ft:dora", project_id="p")
    state = replace(rows("tiny", "ft:dora", servings=[plain]), engines=[RUNS, own])
    statuses = {"eng_2": answering()}
    assert "eng-2" not in {row.id for row, _ in planned(state, **statuses).updates}
    route = routes_of(state, seen([plain], **statuses), "builtin")["ft:dora"]
    assert [one.engine_id for one in route.endpoints] == ["eng-2"]
    assert (route.engine, route.engine_version_id, route.error) == ("vllm", "ft:dora", "")
    new = replace(RUNS, engine="builtin", arguments=EngineArguments(), gpus=0)
    state = replace(state, engines=[replace(new, adapters=("ft:dora",)), own])
    statuses["eng_1"] = answering("ft:dora")
    (gone,) = [new for row, new in planned(state, **statuses).updates if row.id == "eng-2"]
    assert gone.desired != RUNNING
    route = routes_of(state, seen([plain], **statuses), "builtin")["ft:dora"]
    assert [one.engine_id for one in route.endpoints] == ["eng-1"]


def test_engines_that_answer_for_a_copy_do_not_sleep_until_it_does() -> None:
    able = replace(VLLM, sleep_seconds=60)
    old = replace(RUNS, engine="builtin", adapters=("ft:dora",), sleeps=True)
    wants = [
        WantedVersion("tiny", "tiny", NOW - 300, NOW - 400),
        WantedVersion("ft:dora", "tiny", NOW, NOW - 30),
    ]
    loaded = {"eng_1": answering("ft:dora")}
    state = Rows(NOW, [old], wants, [able])
    assert not planned(state, **loaded).updates
    state = replace(state, wants=[wants[0], replace(wants[1], used_at=NOW - 60)])
    ((_, due),) = planned(state, **loaded).updates
    assert due.asleep
