"""Adapters of several projects in one pod of the operator's, which Kueue admits."""

from collections.abc import Iterator
from typing import Any

import pytest
from tests.cluster.fixtures import Clusters
from tests.cluster.stages.training import CLUSTER, Loop, TrainingStage, training_stage
from tests.support.environments import postgres

pytestmark = [pytest.mark.torch, pytest.mark.timeout(1200)]
TEAMS = {"readers": (1, 2, 3, 4, 5), "urgent": (9, 8, 7, 6, 5)}
OPERATORS = "operators"


@pytest.fixture(scope="module")
def stage(clusters: Clusters, postgres_url: str, schema_template: str) -> Iterator[TrainingStage]:
    with (
        postgres.fresh_database(postgres_url, template=schema_template) as url,
        training_stage(clusters, url) as made,
    ):
        yield made


def test_projects_share_one_pod_of_the_operators_and_have_the_bits_of_this_machine(
    stage: TrainingStage,
) -> None:
    here = {name: ended(stage, loop) for name, loop in began(stage).items()}
    stage.host_adapters(OPERATORS)
    nothing = stage.left()
    loops = began(stage)
    pod = only_pod(stage)
    stage.journey.clusters[CLUSTER].kubectl(
        "delete", "pod", pod, "-n", stage.journey.projects[OPERATORS].namespace, "--wait=false"
    )
    # What it held comes back from the log, in another pod.
    there = {name: ended(stage, loop) for name, loop in loops.items()}
    assert there == here
    stage.wait_empty(nothing)


def began(stage: TrainingStage) -> dict[str, Loop]:
    """Loops of both projects after two steps, taken one beside the other."""
    loops = {name: stage.adapter_loop(name, tokens) for name, tokens in TEAMS.items()}
    for _ in range(2):
        asked = {name: loop.ask() for name, loop in loops.items()}
        for name, loop in loops.items():
            loop.keep(asked[name])
    return loops


def ended(stage: TrainingStage, loop: Loop) -> tuple[Any, ...]:
    """What a loop has learned after one step more."""
    loop.step()
    found = loop.losses, loop.sampled(), stage.weights(loop)
    loop.close()
    return found


def only_pod(stage: TrainingStage) -> str:
    """The name of the one pod, which counts against the operator's quota and no other's."""
    assert not any(stage.found(kind, name) for kind in ("pods", "workloads") for name in TEAMS)
    [pod] = stage.found("pods", OPERATORS)
    [workload] = stage.found("workloads", OPERATORS)
    [queue] = stage.found("localqueues", OPERATORS)
    assert workload["spec"]["queueName"] == queue["metadata"]["name"]
    return str(pod["metadata"]["name"])
