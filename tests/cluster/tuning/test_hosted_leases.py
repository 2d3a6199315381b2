"""Runs of one project that share a counted device of a real cluster, as processes of one pod."""

from collections.abc import Iterator
from typing import Any

import pytest
from tests.cluster.fixtures import Clusters
from tests.cluster.stages.training import CLUSTER, TrainingStage, training_stage
from tests.cluster.tuning.test_shared_leases import (
    FIRST,
    GIB,
    SEATS,
    SECOND,
    computed,
    ended,
    is_one_workload,
    role_of,
)
from tests.support.environments import postgres

pytestmark = [pytest.mark.torch, pytest.mark.timeout(1500)]
RESOURCE = "amd.com/gpu"


@pytest.fixture(scope="module")
def stage(clusters: Clusters, postgres_url: str, schema_template: str) -> Iterator[TrainingStage]:
    with (
        postgres.fresh_database(postgres_url, template=schema_template) as url,
        training_stage(clusters, url, seats=SEATS, quota_bytes=6 * GIB, counted=RESOURCE) as made,
    ):
        yield made


def test_runs_are_processes_of_one_pod_and_come_back_once_that_is_gone(
    stage: TrainingStage,
) -> None:
    nothing = stage.left()
    here = computed(stage)
    first, second = (stage.loop("readers", one, cluster=CLUSTER) for one in (FIRST, SECOND))
    first.step()
    second.step()
    holder = only_pod(stage)
    [container] = holder["spec"]["containers"]
    assert container["resources"]["requests"][RESOURCE] == "1"
    is_one_workload(stage)
    first.step()
    second.step()
    assert only_pod(stage)["metadata"]["uid"] == holder["metadata"]["uid"]
    name, space = holder["metadata"]["name"], holder["metadata"]["namespace"]
    stage.journey.clusters[CLUSTER].kubectl("delete", "pod", name, "-n", space, "--wait=false")
    first.step()
    second.step()
    assert only_pod(stage)["metadata"]["uid"] != holder["metadata"]["uid"]
    there = {"first": ended(stage, first, samples=True), "second": ended(stage, second)}
    first.close()
    second.close()
    assert there == here
    stage.wait_empty(nothing)


def only_pod(stage: TrainingStage) -> dict[str, Any]:
    """The pod of the lease, beside which no other of the project runs."""
    found = stage.found("pods", "readers")
    [pod] = [one for one in found if "deletionTimestamp" not in one["metadata"]]
    assert role_of(pod) == "lease"
    return pod
