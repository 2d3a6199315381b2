"""Runs of one project that share a device of a real cluster by a lease, and take turns on it."""

from collections.abc import Iterator
from typing import Any

import pytest
from tests.cluster.fixtures import Clusters
from tests.cluster.stages.training import CLUSTER, TrainingStage, training_stage
from tests.support.environments import postgres

pytestmark = [pytest.mark.torch, pytest.mark.timeout(1500)]
FIRST, SECOND = (1, 2, 3, 4, 5), (9, 8, 7, 6, 5)
MIB, GIB = 2**20, 2**30
SHARED = {
    "device_bytes": 8 * GIB, "host_bytes": 6 * GIB, "program_bytes": 700 * MIB,
    "max_residents": 4, "rest_seconds": 3,
}  # fmt: skip
SEATS = {"turns": "fifo", "turn_seconds": 1, "clusters": {CLUSTER: SHARED}}


@pytest.fixture(scope="module")
def stage(clusters: Clusters, postgres_url: str, schema_template: str) -> Iterator[TrainingStage]:
    with (
        postgres.fresh_database(postgres_url, template=schema_template) as url,
        training_stage(clusters, url, seats=SEATS, quota_bytes=6 * GIB) as made,
    ):
        yield made


def test_runs_share_a_device_by_one_workload_and_take_turns_without_a_restart(
    stage: TrainingStage,
) -> None:
    nothing = stage.left()
    here = computed(stage)
    third = stage.loop("readers", FIRST, cluster=CLUSTER, resources='{"memory": "5Gi"}')
    # It leaves its place once it has rested, for the others do not fit beside it.
    third.step()
    first, second = (stage.loop("readers", one, cluster=CLUSTER) for one in (FIRST, SECOND))
    first.step()
    second.step()
    pods = workers(stage)
    assert sorted(role_of(one) for one in pods.values()) == ["trainer", "trainer"]
    is_one_claim(stage, pods)
    is_one_workload(stage)
    for loop in (first, second, first, second):
        loop.step()
    assert workers(stage).keys() == pods.keys(), "nobody was started anew"
    assert min(stage.numbers("SELECT switches FROM tuning_seats WHERE lease_id <> ''")) >= 1
    there = {"first": ended(stage, first, samples=True), "second": ended(stage, second)}
    third.ask()

    def used() -> None:
        first.look()
        second.look()

    said = stage.reason(third, used)
    assert "The host of east has 6 GiB of memory for residents" in said
    third.close()
    is_one_workload(stage)
    first.close()
    second.close()
    assert there == here
    stage.wait_empty(nothing)


def test_runs_come_back_from_their_log_once_the_pod_that_holds_the_device_is_gone(
    stage: TrainingStage,
) -> None:
    nothing = stage.left()
    here = computed(stage)
    first, second = (stage.loop("readers", one, cluster=CLUSTER) for one in (FIRST, SECOND))
    first.step()
    second.step()
    pods = workers(stage)
    [holder] = [one for one in stage.found("pods", "readers") if role_of(one) == "lease"]
    name, space = holder["metadata"]["name"], holder["metadata"]["namespace"]
    stage.journey.clusters[CLUSTER].kubectl("delete", "pod", name, "-n", space, "--wait=false")
    for loop in (first, second, first, second):
        loop.step()
    assert not workers(stage).keys() & pods.keys()
    there = {"first": ended(stage, first, samples=True), "second": ended(stage, second)}
    first.close()
    second.close()
    assert there == here
    stage.wait_empty(nothing)


def computed(stage: TrainingStage) -> dict[str, Any]:
    """What the same loops compute on this machine."""
    found: dict[str, Any] = {}
    for name, tokens in (("first", FIRST), ("second", SECOND)):
        loop = stage.loop("readers", tokens)
        for _ in range(3):
            loop.step()
        found[name] = ended(stage, loop, samples=name == "first")
        loop.close()
    return found


def ended(stage: TrainingStage, loop: Any, *, samples: bool = False) -> tuple[Any, ...]:
    """What a loop has come to."""
    return loop.losses, stage.weights(loop), loop.sampled() if samples else None


def role_of(item: dict[str, Any]) -> str:
    return str(item["metadata"]["labels"].get("windlass.dev/role", ""))


def workers(stage: TrainingStage) -> dict[str, dict[str, Any]]:
    """Pods that sit on a lease, by their uids."""
    found = stage.found("pods", "readers")
    return {one["metadata"]["uid"]: one for one in found if role_of(one) in ("trainer", "sampler")}


def is_one_claim(stage: TrainingStage, pods: dict[str, dict[str, Any]]) -> None:
    """The pods joined the claim of the one that holds the device, by its generated name."""
    [holder] = [one for one in stage.found("pods", "readers") if role_of(one) == "lease"]
    [given] = holder["status"]["resourceClaimStatuses"]
    for pod in pods.values():
        [claimed] = pod["spec"]["resourceClaims"]
        assert claimed["resourceClaimName"] == given["resourceClaimName"]
        assert pod["spec"]["nodeName"] == holder["spec"]["nodeName"]
    [claim] = stage.found("resourceclaims", "readers")
    reserved = {one["uid"] for one in claim["status"]["reservedFor"]}
    assert reserved == {holder["metadata"]["uid"], *pods}


def is_one_workload(stage: TrainingStage) -> None:
    """Kueue counts the pod that holds the device, with the memory of all, and no other."""
    [workload] = stage.found("workloads", "readers")
    [assigned] = workload["status"]["admission"]["podSetAssignments"]
    [holder] = [one for one in stage.found("pods", "readers") if role_of(one) == "lease"]
    [owner] = workload["metadata"]["ownerReferences"]
    assert owner["uid"] == holder["metadata"]["uid"]
    assert assigned["resourceUsage"]["memory"] in ("6Gi", str(6 * GIB))
