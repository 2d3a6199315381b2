"""An engine on several nodes: what its pods, its set and Kueue show, and what is told of it."""

from dataclasses import replace
from typing import Any

import pytest
from tests.unit.agent.kubernetes.test_tracked_engine import (
    LOADS,
    PATIENCE,
    POD,
    SERVES,
    admitted,
    deployment,
    see,
    told,
    workload,
)

from windlass.api.clusters.v1 import clusters_pb2 as pb
from windlass.api.keeper.v1.keeper_pb2 import EngineState
from windlass.kubernetes import labels
from windlass_agent.executors.kubernetes.engines.diagnosis import awaits_weights, said
from windlass_agent.executors.kubernetes.engines.observed import (
    SKEW_SECONDS,
    EngineRoot,
    EngineSnapshot,
    trim_group,
    trim_pod,
)
from windlass_agent.executors.kubernetes.engines.tracked import Due
from windlass_agent.executors.kubernetes.observe.snapshot import (
    Container,
    KubeEvent,
    PodSnapshot,
)
from windlass_agent.kube.resources import LEADERWORKERSETS
from windlass_agent.kueue.workload import Workload

MADE = workload(engine="vllm", nodes=2)
LEADER = replace(POD, name="windlass-engine-eng-1-0")
MEMBER = replace(POD, name="windlass-engine-eng-1-0-1", uid="u-2", rank=1, address="10.0.0.8")
ENDED = Container(state="terminated", exit_code=1)


def root(**changes: Any) -> EngineRoot:
    return replace(deployment(MADE), resource=LEADERWORKERSETS, nodes=2, **changes)


def group(*pods: PodSnapshot, **changes: Any) -> EngineSnapshot:
    return replace(EngineSnapshot(root=root(), pods=pods, admission=admitted()), **changes)


def test_the_first_pod_serves_by_its_keepers_word() -> None:
    engine = told(MADE)
    see(engine, group(LEADER, MEMBER), SERVES)
    assert engine.status().endpoint == "pod://team-a/windlass-engine-eng-1-0"
    assert engine.due(0) is Due.NOTHING
    # Another pod alone is none that serves.
    see(engine, group(MEMBER), SERVES)
    assert engine.status().phase == pb.PHASE_PENDING


def test_the_route_leaves_with_the_first_pod_while_it_drains() -> None:
    engine = told(MADE)
    see(engine, group(LEADER, MEMBER), SERVES)
    see(engine, group(replace(LEADER, deleting=True), MEMBER), SERVES)
    assert not engine.serves
    assert (engine.status().phase, engine.failure) == (pb.PHASE_PENDING, None)


@pytest.mark.parametrize(
    ("others", "lost", "broken"),
    [
        ((), "", True),
        ((replace(MEMBER, uid="u-3", phase="Pending", runner=None),), "", True),
        ((replace(MEMBER, uid="u-3"),), "", True),
        ((replace(MEMBER, phase="Failed", reason="Evicted"),), "", True),
        ((replace(MEMBER, node="m", deleting=True),), "m", True),
        # It waits for the first one's open requests.
        ((replace(MEMBER, node="m", deleting=True),), "", False),
    ],
)
def test_a_group_that_lacks_a_pod_gets_no_requests(
    others: tuple[PodSnapshot, ...], lost: str, broken: bool
) -> None:
    engine = told(MADE)
    see(engine, group(LEADER, MEMBER), SERVES)
    see(engine, group(LEADER, *others, lost=frozenset({lost})), SERVES)
    assert (engine.serves, engine.broken, engine.failure) == (False, broken, None)
    see(engine, group(replace(LEADER, uid="u-8"), replace(MEMBER, uid="u-9")), SERVES)
    assert (engine.serves, engine.broken) == (True, False)


FETCHES = EngineState(phase=pb.PHASE_STARTING, reason="Downloading")
UNFETCHED = EngineState(phase=pb.PHASE_FAILED, reason="DownloadFailed")
NOT_STARTED = EngineState(phase=pb.PHASE_FAILED, reason="StartFailed")


@pytest.mark.parametrize(
    ("states", "counts", "awaits"),
    [
        ([NOT_STARTED, LOADS], NOT_STARTED, False),
        ([NOT_STARTED, FETCHES], FETCHES, True),
        ([NOT_STARTED, None], None, True),
        ([LOADS, FETCHES, UNFETCHED], UNFETCHED, True),
        ([SERVES, None], SERVES, True),
        ([None, FETCHES], None, True),
        ([NOT_STARTED], NOT_STARTED, False),
    ],
)
def test_a_start_is_not_judged_before_all_pods_have_weights(
    states: list[EngineState | None], counts: EngineState | None, *, awaits: bool
) -> None:
    assert (said(states), awaits_weights(states)) == (counts, awaits)


def test_a_group_serves_once_it_runs_on_every_node() -> None:
    engine = told(MADE)
    see(engine, group(LEADER, replace(MEMBER, phase="Pending", runner=None)), SERVES)
    assert (engine.serves, engine.broken) == (False, False)


def test_trouble_of_any_pod_is_told() -> None:
    engine = told(MADE)
    unpulled = replace(MEMBER, runner=Container(state="waiting", reason="ErrImagePull"))
    see(engine, group(LEADER, unpulled), LOADS)
    assert engine.status().reason == "ImagePullFailed"


def test_a_pod_that_is_not_made_is_told() -> None:
    said = "exceeded quota: q, requested: memory=9Gi, used: memory=0, limited: memory=8Gi"
    event = KubeEvent(
        namespace="team-a", kind="StatefulSet", name="windlass-engine-eng-1-0",
        reason="FailedCreate", message=said,
    )  # fmt: skip
    engine = told(MADE)
    see(engine, group(LEADER, events=(event,)), LOADS)
    assert (engine.status().phase, engine.status().reason) == (pb.PHASE_FAILED, "QuotaExceeded")
    whole = told(MADE)
    see(whole, group(LEADER, MEMBER, events=(event,)), LOADS)
    assert whole.status().reason == "Loading", "what was"


def test_a_group_larger_than_any_quota_fails_with_the_numbers() -> None:
    said = (
        "couldn't assign flavors to pod set worker: insufficient quota for memory in flavor a, "
        "previously considered podsets requests (1Gi) + current podset request (1Gi) > maximum "
        "capacity (1536Mi)"
    )
    engine = told(MADE)
    waits = group(
        replace(LEADER, node=""), replace(MEMBER, node=""), admission=admitted(yes=False, said=said)
    )
    see(engine, waits)
    see(engine, waits, at=PATIENCE.setup)
    assert (engine.status().phase, engine.status().reason) == (pb.PHASE_FAILED, "ExceedsQuota")
    assert "(1Gi) > maximum capacity (1536Mi)" in engine.status().message


def test_a_pod_that_ends_breaks_the_whole_and_two_such_ends_are_a_failure() -> None:
    engine = told(MADE)
    see(engine, group(LEADER, MEMBER), LOADS)
    assert not engine.broken
    see(engine, group(LEADER, replace(MEMBER, runner=ENDED)), LOADS)
    assert engine.broken
    # LeaderWorkerSet makes it anew; both pods ended of one cause.
    both = replace(LEADER, deleting=True, restarts=1, last_end=ENDED)
    see(engine, group(both, replace(MEMBER, restarts=1, last_end=ENDED)), LOADS)
    again = replace(LEADER, uid="u-3"), replace(MEMBER, uid="u-4")
    see(engine, group(*again), LOADS)
    assert (engine.broken, engine.failure) == (False, None)
    see(engine, group(again[0], replace(again[1], restarts=1, last_end=ENDED)), LOADS)
    assert (engine.status().phase, engine.status().reason) == (pb.PHASE_FAILED, "ProcessExited")
    assert "ended with code 1" in engine.status().message
    assert engine.due(0) is Due.DELETE


def test_a_group_that_is_preempted_has_not_ended_by_itself() -> None:
    engine = told(MADE)
    for number in range(3):
        pods = [replace(one, uid=f"{one.name}-{number}") for one in (LEADER, MEMBER)]
        see(engine, group(*pods), LOADS)
        see(engine, group(*(replace(one, deleting=True, runner=ENDED) for one in pods)), LOADS)
        assert (engine.broken, engine.failure) == (False, None)


def test_what_ends_with_a_first_pod_that_left_breaks_neither_its_group_nor_the_next() -> None:
    engine = told(MADE)
    see(engine, group(LEADER, MEMBER), SERVES)
    # The first pod is evicted alone, and the other's engine ends with it.
    leaving, behind = replace(LEADER, deleting=True), replace(MEMBER, restarts=1, last_end=ENDED)
    see(engine, group(leaving, MEMBER))
    see(engine, group(leaving, behind))
    ending = replace(behind, deleting=True)
    for seconds, stale in ((100.0, behind), (100.0, ending), (SKEW_SECONDS / 2, ending)):
        see(engine, group(replace(LEADER, uid="u-3", created=seconds), stale), LOADS)
        assert (engine.broken, engine.failure) == (False, None)
    # Its own members count.
    fresh, own = replace(LEADER, uid="u-3", created=100), replace(behind, uid="u-4", created=99)
    see(engine, group(fresh, own, ending), LOADS)
    assert engine.broken
    assert engine.failure is None, "the first of its ends"


def test_ends_from_before_it_served_are_forgotten() -> None:
    engine = told(MADE)
    for number in range(3):
        one = replace(LEADER, uid=f"a-{number}"), replace(MEMBER, uid=f"b-{number}")
        see(engine, group(one[0], replace(one[1], restarts=1, last_end=ENDED)), LOADS)
        assert engine.failure is None
        see(engine, group(replace(LEADER, uid=f"c-{number}"), MEMBER), SERVES)
        assert engine.serves


def test_objects_are_read_as_the_cluster_has_them() -> None:
    marks = {labels.WORKLOAD: "eng-1", labels.KIND: labels.ENGINE_KIND, labels.QUEUE: "main"}
    made = trim_group(
        LEADERWORKERSETS,
        {
            "metadata": {"name": "e", "namespace": "n", "uid": "u", "labels": marks},
            "spec": {"leaderWorkerTemplate": {"size": 3}},
        },
    )
    assert made is not None
    assert (made.nodes, made.queue, made.workload) == (3, "main", "eng-1")
    pod = trim_pod(
        {
            "metadata": {
                "name": "e-0-2",
                "namespace": "n",
                "uid": "p",
                "creationTimestamp": "2026-11-27T09:00:01Z",
                "labels": marks | {labels.LWS_INDEX: "2"},
            }
        }
    )
    assert pod is not None
    assert (pod.rank, pod.created) == (2, 1795770001.0)


def test_kueues_workload_of_a_group_is_found_by_its_set() -> None:
    reference = {"kind": "LeaderWorkerSet", "name": "e", "uid": "set-uid"}
    found = Workload.parse(
        {
            "metadata": {
                "namespace": "n", "name": "leaderworkerset-e-0", "uid": "w",
                "ownerReferences": [{"kind": "Pod", "name": "e-0", "uid": "pod-uid"}, reference],
            },
            "spec": {"queueName": "main"},
        }
    )  # fmt: skip
    assert found.owner == "set-uid"
