"""Engines that are serving stacks of others: where they are, and what they do not take."""

from dataclasses import replace
from itertools import count

import pytest

from windlass.api.clusters.v1 import clusters_pb2 as pb
from windlass.core.errors import InvalidArgument
from windlass.inference.domain import (
    RUNNING,
    Engine,
    InferencePolicy,
    Name,
    Rows,
    View,
    WantedVersion,
)
from windlass.inference.planning import EngineChanges, Planner
from windlass.inference.routing import routes_of
from windlass.inference.stacks.requests import to_workload
from windlass.inference.stacks.stack import OPENAI, VLLM, Stack, check_score, check_url

NOW = 1_000_000.0
HOUSE = Stack("house", "east", "http://10.0.0.1", created_at=NOW - 60, updated_at=NOW - 60)
NAMES = {
    "theirs": Name("theirs", "proj-a", "org-a", "theirs", "theirs", stack="house", upstream="up"),
    "tiny": Name("tiny", "proj-a", "org-a", "tiny", "tiny"),
}


def cluster(name: str, *engines: str, slots: int = 1) -> pb.Cluster:
    return pb.Cluster(
        id=name,
        roles=["engines"],
        shared=True,
        embedded=True,
        capacity=pb.Capacity(engines=engines, engine_slots=slots),
    )


CLUSTERS = {
    "east": cluster("east", "builtin", "adopted"),
    "west": cluster("west", "builtin", "adopted"),
}


def want(version: str, since: float = NOW) -> WantedVersion:
    return WantedVersion(version, version, NOW, since)


def planned(
    *versions: str,
    engines: tuple[Engine, ...] = (),
    stack: Stack | None = HOUSE,
    clusters: dict[str, pb.Cluster] = CLUSTERS,
    most: int = 8,
    since: float = NOW,
) -> EngineChanges:
    stacks = {stack.name: stack} if stack else {}
    wants = [want(one, since) for one in versions]
    rows = Rows(NOW, engines, wants, stacks=stacks, quotas={"project": 1})
    numbers = count()
    policy = InferencePolicy("builtin", most, 4, 600, 1e9)
    view = View(NAMES, {}, clusters)
    return Planner(rows, view, policy, lambda: f"eng-{next(numbers)}").plan()


def running(version: str = "theirs", kind: str = "adopted") -> Engine:
    return Engine(
        f"e-{version}", version, version, "proj-a", "org-a", "east", kind, RUNNING, 1, 1, (),
        NOW - 30, NOW - 30,
    )  # fmt: skip


def test_it_is_where_its_stack_is() -> None:
    (made,) = planned("theirs").creates
    assert (made.cluster_id, made.engine) == ("east", "adopted")
    (made,) = planned("theirs", stack=replace(HOUSE, cluster_id="west")).creates
    assert made.cluster_id == "west"


def test_it_takes_no_place_and_no_quota() -> None:
    plan = planned("tiny", engines=(running(),))
    # It is not wanted any more; the one that is wanted has the only place.
    plan = planned("theirs", "tiny", engines=(running(),), most=1)
    assert [one.version_id for one in plan.creates] == ["tiny"]
    assert not plan.updates
    plan = planned("theirs", "tiny", engines=(running("tiny", "builtin"),), most=1)
    assert [one.version_id for one in plan.creates] == ["theirs"]
    assert not plan.updates


def test_a_stack_that_changed_is_told_anew_to_the_same_engine() -> None:
    assert not planned("theirs", engines=(running(),)).updates
    ((_, after),) = planned(
        "theirs", engines=(running(),), stack=replace(HOUSE, updated_at=NOW)
    ).updates
    assert (after.desired, after.generation, after.cluster_id) == (RUNNING, 2, "east")


@pytest.mark.parametrize(("phase", "stays"), [(pb.PHASE_STARTING, True), (pb.PHASE_RUNNING, False)])
def test_what_is_waited_for_is_not_idle_however_short_that_is(
    phase: pb.Phase.ValueType, stays: bool
) -> None:
    engine = running("tiny", "builtin")
    status = pb.WorkloadStatus(phase=phase, generation=1, endpoint="unix:///x")
    rows = Rows(NOW, (engine,), [replace(want("tiny"), used_at=NOW - 8)])
    view = View(NAMES, {engine.id: status}, CLUSTERS)
    plan = Planner(rows, view, InferencePolicy("builtin", 8, 4, 5, 1e9), lambda: "eng-1").plan()
    assert bool(plan.dropped) is not stays
    assert bool(plan.updates) is not stays


def test_one_that_failed_begins_anew_with_what_changed() -> None:
    failed = replace(running(), failed_at=NOW - 5, retry_at=NOW + 300, failures=4, error="no")
    ((_, after),) = planned(
        "theirs", engines=(failed,), stack=replace(HOUSE, updated_at=NOW)
    ).updates
    assert (after.generation, after.failed_at, after.failures, after.error) == (2, 0, 0, "")


def test_a_stack_that_moved_has_another_engine() -> None:
    plan = planned("theirs", engines=(running(),), stack=replace(HOUSE, cluster_id="west"))
    ((_, after),) = plan.updates
    assert after.desired == "deleted"
    (made,) = plan.creates
    assert made.cluster_id == "west"


def test_another_dialect_is_another_engine() -> None:
    plan = planned("theirs", engines=(running(),), stack=replace(HOUSE, dialect="vllm"))
    assert {one.engine for one in plan.creates} == {"adopted-vllm"}


@pytest.mark.parametrize(
    ("stack", "clusters", "said"),
    [
        (None, CLUSTERS, "not described"),
        (HOUSE, {"west": CLUSTERS["west"]}, "not connected"),
        (HOUSE, {"east": cluster("east", "builtin")}, "too old"),
        (HOUSE, {"east": pb.Cluster(id="east", roles=["engines"],
                 capacity=pb.Capacity(engines=["adopted"]))}, "not assigned"),
    ],
)  # fmt: skip
def test_a_way_that_is_none_says_why(
    stack: Stack | None, clusters: dict[str, pb.Cluster], said: str
) -> None:
    plan = planned("theirs", stack=stack, clusters=clusters, since=NOW - 60)
    assert not plan.creates
    ((_, error),) = plan.errors
    assert said in error


def test_its_agent_is_told_which_ranks_it_has() -> None:
    told = to_workload(replace(HOUSE, rerank=True, score=True), "up").capabilities
    assert list(told.routes) == ["/v1/rerank", "/v1/score"]
    assert not to_workload(HOUSE, "up").capabilities.routes


def test_scores_are_not_of_vllm_s_dialect() -> None:
    check_score(True, OPENAI)
    check_score(False, VLLM)
    with pytest.raises(InvalidArgument, match="pairs of texts"):
        check_score(True, VLLM)


def test_its_route_has_its_kind_before_it_answers() -> None:
    rows = Rows(NOW, (), [want("theirs")], stacks={"house": replace(HOUSE, dialect="vllm")})
    view = View(NAMES, {}, CLUSTERS)
    assert routes_of(rows, view, "builtin")["theirs"].engine == "adopted-vllm"


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("http://a:1/", "http://a:1"),
        ("https://a/openai/v1/", "https://a/openai"),
        ("http://[::1]:80/v1", "http://[::1]:80"),
    ],
)
def test_an_address_is_kept_without_its_version(given: str, kept: str) -> None:
    assert check_url(given) == kept


@pytest.mark.parametrize(
    "url",
    [
        "",
        "a:80",
        "unix:///x",
        "file:///etc",
        "http://",
        "http://a b",
        "http://vllm..svc:80",
        "http://.a",
        f"http://{'a' * 64}.b",
        "http://a:99999",
        "http://a\n",
    ],
)
def test_an_address_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(InvalidArgument):
        check_url(url)
