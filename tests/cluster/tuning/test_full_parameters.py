"""Runs of all parameters in pods that Kueue admits: turns, preemption, refusals, and no trace."""

from collections.abc import Iterator
from typing import Any

import pytest
from tests.cluster.fixtures import Clusters
from tests.cluster.stages.training import CLUSTER, TrainingStage, tinker, training_stage
from tests.support.environments import postgres

pytestmark = [pytest.mark.torch, pytest.mark.timeout(1200)]
FIRST, SECOND = (1, 2, 3, 4, 5), (9, 8, 7, 6, 5)


@pytest.fixture(scope="module")
def stage(clusters: Clusters, postgres_url: str, schema_template: str) -> Iterator[TrainingStage]:
    with (
        postgres.fresh_database(postgres_url, template=schema_template) as url,
        training_stage(clusters, url) as made,
    ):
        yield made


def test_runs_take_turns_lose_no_step_and_compute_what_they_do_here(stage: TrainingStage) -> None:
    nothing = stage.left()
    here = computed_here(stage)
    first = stage.loop("readers", FIRST, cluster=CLUSTER)
    first.step()
    is_admitted(stage)
    first.step()
    # The class of its team has it preempt the first one's pod.
    second = stage.loop("urgent", SECOND, cluster=CLUSTER)
    second.step()
    waiting = first.ask()
    assert "insufficient unused quota" in stage.reason(first, second.look)
    second.step()
    # Admitted once the other rests, which is saved for that.
    first.keep(waiting)
    assert stage.has_state(second)
    # What it preempts now has no state: it comes back from its log.
    second.step()
    assert not stage.has_state(first)
    there: dict[str, Any] = {"second": (second.losses, stage.weights(second))}
    second.close()
    there["first"] = first.losses, stage.weights(first), first.sampled()
    first.close()
    assert there == here
    stage.wait_empty(nothing)


def computed_here(stage: TrainingStage) -> dict[str, Any]:
    """What the same loops compute on this machine."""
    found: dict[str, Any] = {}
    for name, team, tokens in (("first", "readers", FIRST), ("second", "urgent", SECOND)):
        loop = stage.loop(team, tokens)
        for _ in range(3):
            loop.step()
        found[name] = loop.losses, stage.weights(loop)
        if name == "first":
            found[name] += (loop.sampled(),)
        loop.close()
    return found


def is_admitted(stage: TrainingStage) -> None:
    """The one Workload of the project is in its queue, and has the quota of one pod."""
    [workload] = stage.found("workloads", "readers")
    [queue] = stage.found("localqueues", "readers")
    assert workload["spec"]["queueName"] == queue["metadata"]["name"]
    conditions = {one["type"]: one["status"] for one in workload["status"]["conditions"]}
    assert conditions["Admitted"] == "True"
    [pod] = stage.found("pods", "readers")
    assert [one["name"] for one in workload["metadata"]["ownerReferences"]] == [
        pod["metadata"]["name"]
    ]


def test_what_no_quota_can_hold_is_refused_with_the_numbers(stage: TrainingStage) -> None:
    nothing = stage.left()
    loop = stage.loop("readers", FIRST, cluster=CLUSTER, resources='{"memory": "64Gi"}')
    with pytest.raises(
        tinker.RequestFailedError, match=r"can never hold it: .*> maximum capacity \("
    ):
        loop.step()
    loop.close()
    stage.wait_empty(nothing)
