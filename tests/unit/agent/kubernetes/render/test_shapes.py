"""Rendering of workloads: golden files, and properties of all of them."""

import json
from typing import Any

import pytest
import yaml
from tests.support.factories.kube_workloads import (
    AMD,
    CA,
    COVERED,
    GOLDEN,
    NVIDIA,
    Case,
    cases,
    workload,
)

from windlass.api.clusters.v1 import clusters_pb2 as pb
from windlass_agent.executors.kubernetes.render.shapes import Unrenderable, owned, render
from windlass_agent.executors.kubernetes.settings import ClusterSettings

CASES = list(cases())
_EVERY = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)


@_EVERY
def test_shapes_are_what_they_were(case: Case) -> None:
    """`python -m tests.support.factories.kube_workloads` writes the files anew."""
    golden = list(yaml.safe_load_all((GOLDEN / f"{case.name}.yaml").read_text()))
    assert json.loads(json.dumps(case.render())) == golden


def _pods(value: Any) -> list[dict[str, Any]]:
    """Pod templates, wherever they are."""
    if isinstance(value, list):
        return [found for item in value for found in _pods(item)]
    if not isinstance(value, dict):
        return []
    if "containers" in value.get("spec", {}):
        return [value]
    return [found for item in value.values() for found in _pods(item)]


@_EVERY
def test_each_pod_is_locked_in(case: Case) -> None:
    """As Pod Security `restricted` wants it, and the API's token kept out."""
    (pod,) = _pods(case.render())
    spec = pod["spec"]
    assert spec["automountServiceAccountToken"] is False
    assert spec["serviceAccountName"] == "windlass-runner"
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    for container in spec["containers"]:
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "readOnlyRootFilesystem": True,
        }
    assert not any("hostPath" in volume for volume in spec["volumes"])
    token = next(volume for volume in spec["volumes"] if volume["name"] == "windlass")
    source = token["projected"]["sources"][0]["serviceAccountToken"]
    assert (source["audience"], source["expirationSeconds"]) == ("windlass", 3600)


@_EVERY
def test_each_object_says_whose_it_is(case: Case) -> None:
    for item in case.render():
        labels = item["metadata"]["labels"]
        assert labels["windlass.dev/job"] == case.workload.id
        assert labels["windlass.dev/attempt"] == "1"
        assert item["metadata"]["namespace"] == "team-a"
    assert item["metadata"]["annotations"]["windlass.dev/generation"] == "3"


@_EVERY
def test_only_the_last_object_is_admitted_and_it_waits_for_that(case: Case) -> None:
    *before, last = case.render()
    queue = "kueue.x-k8s.io/queue-name"
    assert all(queue not in item["metadata"]["labels"] for item in before)
    if case.workload.placement.queue:
        assert last["metadata"]["labels"][queue] == case.workload.placement.queue
        assert last["spec"]["suspend"] is True
    else:
        assert queue not in last["metadata"]["labels"]
        assert "suspend" not in last["spec"]


def test_a_tenants_words_reach_no_name_and_no_command() -> None:
    """Text of a request ends as a checked label, or nowhere."""
    odd = workload(job_id="ftjob-ok")
    odd.job.backend = odd.job.framework = "$(reboot)"
    odd.organization_id = "org'; rm -rf /"
    assert "reboot" not in json.dumps(Case("odd", odd).render())
    assert "rm -rf" not in json.dumps(Case("odd", odd).render())


@pytest.mark.parametrize(
    "change",
    [
        {"namespace": "kube-system/../x"},
        {"namespace": "Team"},
        {"queue": "a b"},
        {"queue": "../main"},
        {"priority_class": "high;low"},
        {"node_selector": {"zone": "a b"}},
        {"node_selector": {"a/b/c": "x"}},
        {"job_id": "ftjob\n"},
        {"job_id": "$(id)"},
    ],
)
def test_a_bad_name_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(Unrenderable) as raised:
        Case("bad", workload(**change)).render()
    assert raised.value.reason == "BadName"


def test_without_a_namespace_there_is_nothing_to_render() -> None:
    with pytest.raises(Unrenderable, match="no namespace") as raised:
        Case("bad", workload(namespace="")).render()
    assert raised.value.reason == "NoNamespace"


def test_without_the_agents_certificate_no_token_leaves_a_pod() -> None:
    with pytest.raises(Unrenderable) as raised:
        render(workload(), ClusterSettings())
    assert raised.value.reason == "NoAgentCA"


def test_what_is_no_job_is_refused() -> None:
    with pytest.raises(Unrenderable) as raised:
        render(pb.Workload(id="eng-1", engine=pb.EngineWorkload()), ClusterSettings())
    assert raised.value.reason == "UnsupportedWorkload"


def _asked(case: Case) -> dict[str, str]:
    limits: dict[str, str] = _pods(case.render())[0]["spec"]["containers"][0]["resources"]["limits"]
    return {name: count for name, count in limits.items() if "/" in name}


def test_the_queue_decides_which_device_a_job_gets() -> None:
    both = {"accelerators": [AMD, NVIDIA]}
    assert _asked(Case("", workload(gpus=1), both)) == {"nvidia.com/gpu": "1"}
    assert _asked(Case("", workload(gpus=4, queue="radeons"), both)) == {"amd.com/gpu": "4"}
    assert _asked(Case("", workload(), both)) == {}
    free = {"accelerators": [AMD | {"queues": []}, NVIDIA]}
    assert _asked(Case("", workload(gpus=1), free, ("cpu", "nvidia.com/gpu"))) == {
        "nvidia.com/gpu": "1"
    }
    assert _asked(Case("", workload(gpus=1), free, COVERED)) == {"amd.com/gpu": "1"}


def test_a_queue_without_quota_for_any_device_is_said_to_be_so() -> None:
    with pytest.raises(Unrenderable, match=r"Queue main .* \(nvidia.com/gpu\)") as raised:
        Case("", workload(gpus=1), {"accelerators": [NVIDIA]}, ("cpu", "memory")).render()
    assert raised.value.reason == "NoAccelerator"


@pytest.mark.parametrize(
    "resource",
    [
        "nvidia.com/gpu",
        "nvidia.com/gpu.shared",
        "nvidia.com/mig-3g.20gb",
        "amd.com/gpu",
        "gpu.intel.com/xe",
        "habana.ai/gaudi",
        "google.com/tpu",
        "aws.amazon.com/neuron",
    ],
)
def test_any_counted_resource_can_be_asked_for(resource: str) -> None:
    settings = {"accelerators": [{"resource": resource}]}
    assert _asked(Case("", workload(gpus=2), settings, (resource,))) == {resource: "2"}


def test_a_job_without_devices_sees_none() -> None:
    """NVIDIA's runtime shows all of them to an image that says so, unless the pod says void."""

    def visible(case: Case) -> list[str]:
        env = _pods(case.render())[0]["spec"]["containers"][0]["env"]
        return [one["value"] for one in env if one["name"] == "NVIDIA_VISIBLE_DEVICES"]

    assert visible(Case("", workload())) == ["void"]
    assert visible(Case("", workload(gpus=1))) == []


def test_what_a_job_does_not_say_the_operator_does() -> None:
    silent = workload()
    silent.resources.Clear()
    settings = {"sizes": {"cpus": 0.5, "memory_bytes": 2**30}}
    resources = _pods(Case("", silent, settings).render())[0]["spec"]["containers"][0]["resources"]
    assert resources["requests"] == {"cpu": "500m", "memory": str(2**30)}
    assert resources["limits"] == {"memory": str(2**30)}


def test_shared_memory_is_at_most_half() -> None:
    small = workload()
    small.resources.memory_bytes = 1024**3
    volumes = _pods(Case("", small).render())[0]["spec"]["volumes"]
    (shm,) = [volume for volume in volumes if volume["name"] == "shm"]
    assert shm["emptyDir"] == {"medium": "Memory", "sizeLimit": str(1024**3 // 2)}


def test_dependents_are_owned_by_what_the_cluster_answered() -> None:
    claim, job = next(case for case in CASES if case.name == "job-claimed").render()
    answered = job | {"metadata": job["metadata"] | {"uid": "u-1"}}
    reference = owned(claim, answered)["metadata"]["ownerReferences"]
    assert reference == [
        {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "name": job["metadata"]["name"],
            "uid": "u-1",
            "controller": False,
            "blockOwnerDeletion": False,
        }
    ]
    assert "ownerReferences" not in claim["metadata"]


def test_the_certificate_travels_with_the_pod() -> None:
    (pod,) = _pods(CASES[0].render())
    assert pod["metadata"]["annotations"]["windlass.dev/agent-ca"] == CA
