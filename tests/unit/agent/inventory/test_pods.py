"""Requests of pods, and the node that they count against."""

from typing import Any

import pytest

from windlass_agent.inventory.pods import requests, trim_pod, usage_by_node

GPU = "nvidia.com/gpu"


def container(**resources: Any) -> dict[str, Any]:
    return {
        "resources": {
            "requests": {name.replace("gpu", GPU): str(v) for name, v in resources.items()}
        }
    }


def pod(node: str = "", phase: str = "Pending", nominated: str = "", **spec: Any) -> dict[str, Any]:
    status = {"phase": phase} | ({"nominatedNodeName": nominated} if nominated else {})
    return {"metadata": {}, "spec": {"nodeName": node, **spec}, "status": status}


@pytest.mark.parametrize(
    ("spec", "wanted"),
    [
        (
            {"containers": [container(cpu="500m"), container(cpu="250m", gpu=2)]},
            {"cpu": 750, GPU: 2},
        ),
        # An init container runs before the others, so the larger counts.
        (
            {"initContainers": [container(cpu=2, gpu=1)], "containers": [container(cpu=1, gpu=4)]},
            {"cpu": 2000, GPU: 4},
        ),
        # A sidecar runs beside both.
        (
            {
                "initContainers": [
                    {**container(cpu=1), "restartPolicy": "Always"},
                    container(cpu=3),
                ],
                "containers": [container(cpu=1)],
            },
            {"cpu": 4000},
        ),
        ({"containers": [{"resources": {"limits": {GPU: "1"}}}]}, {GPU: 1}),
        ({"containers": [container(cpu=1)], "overhead": {"cpu": "100m"}}, {"cpu": 1100}),
        (
            {"containers": [container(cpu=1, gpu=1)], "resources": {"requests": {"cpu": "3"}}},
            {"cpu": 3000, GPU: 1},
        ),
        ({"containers": [{"resources": {"requests": {"rdma/hca": "1"}}}]}, {}),
        ({}, {}),
    ],
)
def test_a_pod_asks_for_the_most_it_needs_at_one_time(
    spec: dict[str, Any], wanted: dict[str, int]
) -> None:
    assert requests(spec) == wanted


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_an_ended_pod_holds_nothing(phase: str) -> None:
    assert trim_pod(pod("a", phase, containers=[container(gpu=1)])) is None


def test_pods_count_where_they_are_or_wait() -> None:
    one: dict[str, Any] = {"containers": [container(cpu=1, memory="1Gi", gpu=1)]}
    pods = [
        pod("a", "Running", **one),
        pod("a", "Pending", **one),
        pod("", "Pending", nominated="b", **one),
        pod("", "Pending", **one),
        pod("", "Pending", **one),
    ]
    usage = usage_by_node(trimmed for each in pods if (trimmed := trim_pod(each)))
    assert usage["a"].running == {GPU: 1}
    assert usage["a"].pending == {GPU: 1}
    assert (usage["a"].cpu_millis, usage["a"].memory_bytes) == (2000, 2 << 30)
    # Room is being made for it, but nothing of the node is its yet.
    assert usage["b"].pending == {GPU: 1}
    assert usage["b"].cpu_millis == 0
    assert usage[""].pending == {GPU: 2}
    assert sum(each.pending.get(GPU, 0) for each in usage.values()) == 4
