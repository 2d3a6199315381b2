"""Parts of one device, which the real scheduler gives to jobs of several namespaces.

The device is one that no driver prepares, since the example driver offers whole devices only: pods
are placed, and do not start.
"""

import secrets
from typing import Any

import pytest
from tests.cluster.cluster import TestCluster
from tests.cluster.driver.test_shapes import account
from tests.support.factories.kube_workloads import Case, workload
from tests.support.waiting import wait_until


@pytest.fixture
def part(east: TestCluster) -> dict[str, Any]:
    """An accelerator of which a pod has 16 of 40 GiB; there is one such device."""
    name = f"parts-{secrets.token_hex(3)}.example.com"
    api = {"apiVersion": "resource.k8s.io/v1"}
    selector = {"cel": {"expression": f"device.driver == '{name}'"}}
    device = {
        "name": "gpu-0",
        "allowMultipleAllocations": True,
        "capacity": {"memory": {"value": "40Gi"}},
    }
    pool = {"name": "all", "generation": 1, "resourceSliceCount": 1}
    offered = {"driver": name, "pool": pool, "allNodes": True, "devices": [device]}
    for kind, spec in (("DeviceClass", {"selectors": [selector]}), ("ResourceSlice", offered)):
        east.remove_after(kind.lower(), name)
        east.apply(api | {"kind": kind, "metadata": {"name": name}, "spec": spec})
    return {
        "device_class": name,
        "capacity": {"memory": "16Gi"},
        "queues": ["main"],
        "device": "cpu",
    }


def test_jobs_of_two_namespaces_have_parts_of_one_device(
    east: TestCluster, part: dict[str, Any]
) -> None:
    first, second = start(east, part), start(east, part)
    given = [allocated(east, namespace) for namespace in (first, second)]
    assert [one["device"] for one in given] == ["gpu-0", "gpu-0"]
    assert [one["consumedCapacity"]["memory"] for one in given] == ["16Gi", "16Gi"]
    third = start(east, part)
    wait_until(lambda: is_told(east, third), "the third is told that no device has room")
    (waiting,) = claims(east, third)
    assert "allocation" not in waiting.get("status", {})
    east.kubectl("delete", "jobs", "--all", "-n", first)
    assert allocated(east, third)["device"] == "gpu-0"


def start(cluster: TestCluster, part: dict[str, Any]) -> str:
    """Applies a job with a part of a device in a namespace of its own, which it returns."""
    namespace = cluster.namespace()
    cluster.apply(account(namespace))
    cluster.queues(namespace, cpu="4", memory="8Gi")
    made = workload(namespace=namespace, gpus=1)
    made.resources.cpus = 0
    made.resources.memory_bytes = 2**28
    sizes = {"cpus": 0.05, "workdir_bytes": 2**20, "tmp_bytes": 2**20, "shm_bytes": 2**20}
    settings = {"image": cluster.image, "sizes": sizes, "accelerators": [part]}
    cluster.apply(*Case("part", made, settings, covered=("cpu", "memory")).render())
    return namespace


def claims(cluster: TestCluster, namespace: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = cluster.get("resourceclaims", "-n", namespace)["items"]
    return found


def allocated(cluster: TestCluster, namespace: str) -> dict[str, Any]:
    """What the scheduler gave to the one claim of a namespace, once it did."""

    def results() -> list[dict[str, Any]]:
        found = (one.get("status", {}).get("allocation") for one in claims(cluster, namespace))
        return [result for one in found if one for result in one["devices"]["results"]]

    wait_until(results, f"a device is given in {namespace}", 120)
    (given,) = results()
    return given


def is_told(cluster: TestCluster, namespace: str) -> bool:
    """True once the scheduler has said that a pod's claim finds no device."""
    conditions = (
        condition
        for pod in cluster.get("pods", "-n", namespace)["items"]
        for condition in pod["status"].get("conditions", ())
    )
    return any("cannot allocate all claims" in one.get("message", "") for one in conditions)
