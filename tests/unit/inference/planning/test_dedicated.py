"""Adapters with engines of their own, which run their base and serve them alone."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import count

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.inference.test_planning import applied

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
from windlass.modelfiles.footprint import Footprint

NOW = 1_000_000.0
GIB = 2**30
BASE = Name("tiny", "", "", "tiny", "tiny", footprint=Footprint(60 * GIB, 1, 0, 0, 1, 2, 2, 512))
ALONE = Name("ft:alone", "p", "o", "ft:alone", "tiny", adapter=AdapterTraits(8))
SHARED = Name("ft:shared", "p", "o", "ft:shared", "tiny", adapter=AdapterTraits(8))
DORA = Name("ft:dora", "p", "o", "ft:dora", "tiny", adapter=AdapterTraits(8, ("use_dora",)))
ALL = {name.version_id: name for name in (BASE, ALONE, SHARED, DORA)}
OF_BASE = Serving(
    "", "tiny", "", "tiny", "tiny", 1, NOW - 60, engine="vllm",
    arguments=EngineArguments(context_length=512), target_requests=3,
)  # fmt: skip
DEDICATED = Serving("p", "ft:alone", "o", "ft:alone", "tiny", 0, NOW - 60, dedicated=True)
RUNS = Engine(
    id="eng-base", version_id="tiny", model="tiny", project_id="", organization_id="",
    cluster_id="big", engine="vllm", desired=RUNNING, generation=1, put_generation=1,
    adapters=(), created_at=NOW - 100, urls_at=NOW, arguments=OF_BASE.arguments, gpus=2,
)  # fmt: skip
OWN = replace(
    RUNS, id="eng-own", version_id="ft:alone", model="ft:alone", project_id="p",
    organization_id="o", adapters=("ft:alone",),
)  # fmt: skip
WANTED = ("tiny", "ft:alone", "ft:shared")


def loaded(*adapters: str, error: str = "") -> pb.WorkloadStatus:
    found = [pb.LoadedAdapter(id=one, version_id=one, error=error) for one in adapters]
    return pb.WorkloadStatus(
        generation=1, phase=pb.PHASE_RUNNING, endpoint="unix:///e", adapters=found
    )


def seen(servings: Sequence[Serving], **statuses: pb.WorkloadStatus) -> View:
    devices = [pb.Device(id=str(one), memory_bytes=48 * GIB) for one in range(8)]
    cluster = pb.Cluster(
        id="big", live=True, shared=True, embedded=True, roles=["engines"],
        capacity=pb.Capacity(
            engines=["builtin", "vllm"], engine_slots=8, gpus=8, devices=devices
        ),
    )  # fmt: skip
    told = {key.replace("_", "-"): one for key, one in statuses.items()}
    names = with_copies(ALL, servings, "builtin")
    return View(names=names, statuses=told, clusters={"big": cluster})


def rows(*engines: Engine, own: Serving | None = DEDICATED, wanted: Sequence[str] = WANTED) -> Rows:
    wants = [WantedVersion(version, "tiny", NOW, NOW - 30) for version in wanted]
    return Rows(NOW, engines, wants, [OF_BASE, own] if own else [OF_BASE])


def planned(state: Rows, **statuses: pb.WorkloadStatus) -> EngineChanges:
    numbers = count()
    policy = InferencePolicy("builtin", 8, 4, 600, 1800)
    view = seen(state.servings, **statuses)
    return Planner(state, view, policy, lambda: f"eng-new-{next(numbers)}").plan()


def test_it_gets_an_engine_as_its_base_has_them_and_no_place_on_those() -> None:
    changes = planned(rows(RUNS), eng_base=loaded())
    (made,) = changes.creates
    assert (made.version_id, made.project_id, made.adapters) == ("ft:alone", "p", ("ft:alone",))
    assert (made.engine, made.arguments) == ("vllm", OF_BASE.arguments)
    assert made.gpus == 2, "by the weights of its base"
    ((_, revised),) = changes.updates
    assert revised.adapters == ("ft:shared",)


def test_it_has_as_many_as_its_own_serving_says() -> None:
    own = replace(DEDICATED, min_replicas=2)
    assert len(planned(rows(RUNS, own=own, wanted=["tiny"]), eng_base=loaded()).creates) == 2
    own = replace(DEDICATED, max_replicas=3, target_requests=1)
    state = replace(rows(RUNS, own=own), loads={"ft:alone": 3})
    assert len(planned(state, eng_base=loaded()).creates) == 3


def test_it_stays_as_it_is_whatever_else_is_asked_for() -> None:
    statuses = {"eng_base": loaded("ft:shared"), "eng_own": loaded("ft:alone")}
    base = replace(RUNS, adapters=("ft:shared",))
    changes = planned(rows(base, OWN), **statuses)
    assert not changes.creates
    assert not changes.updates


def test_requests_for_it_alone_go_to_its_own_engine() -> None:
    state = rows(replace(RUNS, adapters=("ft:shared",)), OWN)
    view = seen(state.servings, eng_base=loaded("ft:shared"), eng_own=loaded("ft:alone"))
    routes = routes_of(state, view, "builtin")
    found = {key: [one.engine_id for one in route.endpoints] for key, route in routes.items()}
    assert found == {"tiny": ["eng-base"], "ft:shared": ["eng-base"], "ft:alone": ["eng-own"]}
    assert routes["ft:alone"].engine_version_id == "ft:alone"


@pytest.mark.parametrize(
    ("status", "error", "waits_for"),
    [(loaded(), "", "loading the adapter"), (loaded("ft:alone", error="broken"), "broken", "")],
)
def test_it_answers_once_the_adapter_is_loaded(
    status: pb.WorkloadStatus, error: str, waits_for: str
) -> None:
    state = rows(RUNS, OWN)
    route = routes_of(state, seen(state.servings, eng_base=loaded(), eng_own=status), "builtin")
    assert not route["ft:alone"].endpoints
    assert (route["ft:alone"].error, route["ft:alone"].waits_for) == (error, waits_for)


def test_its_base_answers_until_its_own_engine_does() -> None:
    base = replace(RUNS, adapters=("ft:alone", "ft:shared"))
    statuses = {"eng_base": loaded("ft:alone", "ft:shared"), "eng_own": loaded()}
    state = rows(base, OWN)
    assert not planned(state, **statuses).updates, "its engine has not loaded it yet"
    route = routes_of(state, seen(state.servings, **statuses), "builtin")["ft:alone"]
    assert [one.engine_id for one in route.endpoints] == ["eng-base"]
    statuses["eng_own"] = loaded("ft:alone")
    ((_, revised),) = planned(state, **statuses).updates
    assert revised.adapters == ("ft:shared",)
    route = routes_of(state, seen(state.servings, **statuses), "builtin")["ft:alone"]
    assert [one.engine_id for one in route.endpoints] == ["eng-own"]


def test_its_own_engine_answers_until_shared_ones_do() -> None:
    state = rows(RUNS, OWN, own=None)
    statuses = {"eng_base": loaded(), "eng_own": loaded("ft:alone")}
    ((row, revised),) = planned(state, **statuses).updates
    assert (row.id, set(revised.adapters)) == ("eng-base", {"ft:alone", "ft:shared"})
    route = routes_of(state, seen(state.servings, **statuses), "builtin")["ft:alone"]
    assert [one.engine_id for one in route.endpoints] == ["eng-own"]
    state = replace(state, engines=[replace(RUNS, adapters=revised.adapters), OWN])
    statuses["eng_base"] = loaded(*revised.adapters)
    ((row, gone),) = planned(state, **statuses).updates
    assert (row.id, gone.desired != RUNNING) == ("eng-own", True)


def test_one_that_no_engine_of_its_base_loads_is_refused_as_before() -> None:
    own = replace(DEDICATED, model="ft:dora", version_id="ft:dora")
    state = rows(RUNS, own=own, wanted=["tiny", "ft:dora"])
    assert not planned(state, eng_base=loaded()).creates
    route = routes_of(state, seen(state.servings, eng_base=loaded()), "builtin")["ft:dora"]
    assert "it is a DoRA adapter" in route.error


def test_a_merged_copy_that_is_to_be_dedicated_is_replaced_and_not_changed() -> None:
    """The base was served by a kind that does not load it."""
    copy = replace(OWN, adapters=())
    statuses = {"eng_base": loaded(), "eng_own": loaded()}
    changes = planned(rows(RUNS, copy, wanted=["tiny", "ft:alone"]), **statuses)
    (made,) = changes.creates
    assert made.adapters == ("ft:alone",)
    assert not changes.updates, "it answers until then"


ADAPTERS = st.sets(st.sampled_from(["ft:alone", "ft:shared"]))
STATUSES = st.sampled_from([pb.WorkloadStatus(), loaded(), loaded("ft:alone", "ft:shared")])
PRESENT = st.sets(st.sampled_from([RUNS, OWN, replace(OWN, id="eng-copy", adapters=())]))


@settings(max_examples=200)
@given(dedicated=ADAPTERS, wanted=ADAPTERS, present=PRESENT, base=STATUSES, own=STATUSES)
def test_plans_come_to_rest_and_each_adapter_is_where_its_serving_says(
    dedicated: set[str],
    wanted: set[str],
    present: set[Engine],
    base: pb.WorkloadStatus,
    own: pb.WorkloadStatus,
) -> None:
    # Of a version one engine runs with each number.
    engines = list({(one.version_id, one.replica): one for one in present}.values())
    servings = [
        replace(DEDICATED, model=one, version_id=one, dedicated=one in dedicated)
        for one in ("ft:alone", "ft:shared")
    ]
    wants = [WantedVersion(one, "tiny", NOW, NOW - 30) for one in ("tiny", *sorted(wanted))]
    state = Rows(NOW, engines, wants, [OF_BASE, *servings])
    statuses = {"eng_base": base, "eng_own": own, "eng_copy": own}
    plan = planned(state, **statuses)
    for made in plan.creates:
        is_own = made.version_id != "tiny"
        assert made.is_dedicated == is_own
        assert made.version_id in {"tiny", *dedicated}
        assert is_own or not dedicated & set(made.adapters)
    again = planned(applied(state, plan), **statuses)
    assert not again.creates
    assert not again.updates
