"""Rendering of a prefetch: a keeper without an engine."""

from typing import Any

import pytest

from windlass.api.clusters.v1 import clusters_pb2 as pb
from windlass_agent.executors.kubernetes.render.prefetch import render_prefetch
from windlass_agent.executors.kubernetes.settings import ClusterSettings
from windlass_agent.kube.errors import Unrenderable

SETTINGS: dict[str, Any] = {
    "agent_ca": "-----BEGIN CERTIFICATE-----",
    "engines": {
        "images": {"builtin": {"image": "runner:1"}},
        "weights": {"claim": "weights", "bytes": 2**30},
        "overlay": {
            "spec": {
                "containers": [{"name": "engine", "env": [{"name": "A", "value": "1"}]}],
                "initContainers": [{"name": "keeper", "env": [{"name": "B", "value": "2"}]}],
            }
        },
    },
}


def workload(namespace: str = "team-a", **prefetch: Any) -> pb.Workload:
    return pb.Workload(
        id="pre-1", cluster_id="cl-1", project_id="proj_A", generation=2,
        placement=pb.Placement(namespace=namespace, queue="main"),
        prefetch=pb.PrefetchWorkload(**{"model": "m", "model_version_id": "mv-1"} | prefetch),
    )  # fmt: skip


def test_it_is_a_keeper_alone_without_a_queue() -> None:
    body = render_prefetch(workload(), ClusterSettings.model_validate(SETTINGS), None)
    assert (body["kind"], body["spec"]["replicas"]) == ("Deployment", 1)
    assert body["metadata"]["name"] == "windlass-engine-pre-1", "no member enters its pod"
    template = body["spec"]["template"]
    for labels in (body["metadata"]["labels"], template["metadata"]["labels"]):
        assert "kueue.x-k8s.io/queue-name" not in labels
        assert labels["windlass.dev/kind"] == "engine"
    spec = template["spec"]
    (keeper,) = spec["containers"]
    assert (keeper["name"], "initContainers" in spec) == ("keeper", False)
    assert keeper["command"][1:3] == ["-m", "windlass_agent.keeper.prefetch"]
    assert keeper["command"][-4:] == ["--store", "/store", "--store-bytes", str(2**30)]
    assert {"name": "store", "mountPath": "/store"} in keeper["volumeMounts"]
    # What the operator says of the keeper holds here as well.
    assert {"name": "B", "value": "2"} in keeper["env"]
    assert keeper["securityContext"]["readOnlyRootFilesystem"] is True
    assert spec["automountServiceAccountToken"] is False


def test_it_goes_to_the_nodes_that_engines_go_to() -> None:
    gpu: dict[str, Any] = {
        "resource": "nvidia.com/gpu",
        "node_selector": {"gpu": "h100"},
        "tolerations": [{"key": "gpu", "operator": "Exists", "effect": "NoSchedule"}],
    }
    document = SETTINGS | {"engines": SETTINGS["engines"] | {"gpus": 1}, "accelerators": [gpu]}
    wanted = workload()
    wanted.placement.node_selector["pool"] = "a"
    settings = ClusterSettings.model_validate(document)
    spec = render_prefetch(wanted, settings, {"nvidia.com/gpu"})["spec"]["template"]["spec"]
    assert spec["nodeSelector"] == {"gpu": "h100", "pool": "a"}
    assert gpu["tolerations"][0] in spec["tolerations"]
    (keeper,) = spec["containers"]
    assert "nvidia.com/gpu" not in keeper["resources"]["requests"]
    assert "resourceClaims" not in spec


@pytest.mark.parametrize(
    ("namespace", "weights", "reason"),
    [
        ("team-a", {}, "NoStore"),
        ("", {"claim": "w"}, "NoNamespace"),
        ("A b", {"claim": "w"}, "BadName"),
    ],
)
def test_what_cannot_be_rendered_says_why(namespace: str, weights: Any, reason: str) -> None:
    document = SETTINGS | {"engines": SETTINGS["engines"] | {"weights": weights}}
    with pytest.raises(Unrenderable) as refused:
        render_prefetch(workload(namespace), ClusterSettings.model_validate(document), None)
    assert refused.value.reason == reason
