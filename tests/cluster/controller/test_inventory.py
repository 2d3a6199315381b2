"""Inventory of a real cluster's nodes, devices and queues."""

import asyncio
import json
import secrets
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.cluster.cluster import FAKE, TestCluster
from tests.cluster.objects import pods
from tests.cluster.objects.chart import granted
from tests.cluster.stages.settling import Settled, settled

from windlass.api.clusters.v1 import clusters_pb2 as pb
from windlass_agent.kube import Kube

GPU = "nvidia.com/gpu"
LABELS = {
    "nvidia.com/gpu.product": "NVIDIA-A100-SXM4-40GB-SHARED",
    "nvidia.com/gpu.replicas": "4",
    "nvidia.com/mig-1g.5gb.product": "NVIDIA-A100-SXM4-40GB-MIG-1g.5gb",
    "amd.com/gpu.product-name": "AMD_Instinct_MI300X_OAM",
}
OFFERS = {
    GPU: "8",
    "nvidia.com/mig-1g.5gb": "7",
    "amd.com/gpu": "2",
    "habana.ai/gaudi": "8",
    "google.com/tpu": "4",
    "aws.amazon.com/neuroncore": "32",
    "gpu.intel.com/xe": "1",
    "example.com/ignored": "3",
}


@pytest.fixture
async def here(east: TestCluster, tmp_path: Path) -> AsyncIterator[Settled]:
    rights = await asyncio.to_thread(granted, east, tmp_path)
    async with settled(east, rights) as found:
        yield found


def asking(namespace: str, name: str, image: str, node: str = "", **amounts: str) -> dict[str, Any]:
    """A pod that asks for GPUs, on a node that only seems to run it."""
    spec: dict[str, Any] = {
        "tolerations": [FAKE | {"operator": "Exists", "value": ""}],
        "containers": [{"name": "a", "image": image, "resources": {"limits": amounts}}],
    }
    if node:
        spec["nodeSelector"] = {"kubernetes.io/hostname": node}
    metadata = {"name": name, "namespace": namespace}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def gpus(here: Settled, node: str) -> pb.Accelerator:
    state = here.told.items[f"node/{node}"].node
    return next(one for one in state.accelerators if one.resource == GPU)


async def test_nodes_tell_their_accelerators_and_who_has_them(
    east: TestCluster, here: Settled
) -> None:
    node, other = await asyncio.to_thread(east.kwok_nodes, 2, OFFERS)
    for key, value in LABELS.items():
        east.kubectl("label", "node", node, f"{key}={value}")
    namespace = east.namespace(labels={})

    def labelled() -> bool:
        item = here.told.items.get(f"node/{node}")
        return item is not None and LABELS.items() <= dict(item.node.labels).items()

    await here.told.until(labelled)
    state = here.told.items[f"node/{node}"].node
    assert (state.ready, state.schedulable, state.cpu_millis) == (True, True, 32_000)
    found = {one.resource: one for one in state.accelerators}
    assert set(found) == set(OFFERS) - {"example.com/ignored"}
    assert found[GPU].product == "NVIDIA-A100-SXM4-40GB-SHARED"
    assert (found[GPU].capacity, found[GPU].replicas) == (8, 4)
    assert found["nvidia.com/mig-1g.5gb"].product == "NVIDIA-A100-SXM4-40GB-MIG-1g.5gb"
    assert found["amd.com/gpu"].product == "AMD_Instinct_MI300X_OAM"

    waiting = f"{node}-nowhere"
    east.apply(
        asking(namespace, "one", east.image, node, **{GPU: "3", "cpu": "2"}),
        asking(namespace, "two", east.image, node, **{GPU: "2"}),
        asking(namespace, "far", east.image, waiting, **{"amd.com/gpu": "1"}),
    )
    await here.told.until(lambda: gpus(here, node).running == 5)
    assert here.told.items[f"node/{node}"].node.cpu_millis_used >= 2000
    assert gpus(here, other).running == 0
    # Nobody's yet, so it is told apart from every node.
    pending = await here.told.until(lambda: here.told.items.get("pending/amd.com/gpu"))
    assert pending.device_class.pending >= 1
    east.kubectl("delete", "pod", "one", "-n", namespace, "--force", "--grace-period=0")
    await here.told.until(lambda: gpus(here, node).running == 2)
    east.kubectl("cordon", other)
    await here.told.until(lambda: not here.told.items[f"node/{other}"].node.schedulable)
    east.kubectl("delete", "node", other)
    await here.told.until(lambda: f"node/{other}" not in here.told.items)


async def test_only_what_changed_is_told_and_nothing_is_listed_again(
    east: TestCluster, here: Settled, monkeypatch: pytest.MonkeyPatch
) -> None:
    (node,) = await asyncio.to_thread(east.kwok_nodes, 1, {GPU: "8"})
    await here.told.until(lambda: f"node/{node}" in here.told.items)
    listed: list[str] = []
    pages = Kube.pages

    def counted(self: Kube, path: str, **selectors: str) -> Any:
        listed.append(path)
        return pages(self, path, **selectors)

    monkeypatch.setattr(Kube, "pages", counted)
    told = len(here.told.reports)

    def has(count: int) -> bool:
        return gpus(here, node).capacity == count

    for count in (4, 6):
        amounts = {GPU: str(count)}
        status = {"status": {"capacity": amounts, "allocatable": amounts}}
        east.kubectl(
            *("patch", "node", node, "--subresource=status", "--type=merge"),
            *("-p", json.dumps(status)),
        )
        await here.told.until(partial(has, count))
    since = here.told.reports[told:]
    assert not any(report.snapshot for report in since)
    assert not listed
    ours = [item.key for report in since for item in report.items if item.key == f"node/{node}"]
    assert len(ours) >= 2


async def test_device_classes_tell_what_is_claimed(east: TestCluster, here: Settled) -> None:
    driver = await asyncio.to_thread(east.device_class)
    # Of its own, since other tests may claim devices of the driver's class.
    name = f"mine-{secrets.token_hex(3)}"
    selector = {"cel": {"expression": f"device.driver == '{driver}'"}}
    east.remove_after("deviceclass", name)
    east.apply(dra("DeviceClass", {"selectors": [selector]}, name=name))
    found = await here.told.until(lambda: here.told.items.get(f"device_class/{name}"))
    assert found.device_class.is_device_class
    assert found.device_class.capacity > 0

    def offered() -> bool:
        state = here.told.items[f"node/{east.node}"].node
        return any(one.resource == name and one.capacity for one in state.accelerators)

    await here.told.until(offered)

    def use() -> tuple[int, int]:
        item = here.told.items[f"device_class/{name}"].device_class
        return item.pending, item.running

    assert use() == (0, 0)
    namespace = east.namespace()
    request = {"name": "gpu", "exactly": {"deviceClassName": name}}
    claim = {"devices": {"requests": [request]}}
    east.apply(dra("ResourceClaim", claim, name="mine", namespace=namespace))
    await here.told.until(lambda: use() == (1, 0))
    spec = pods.spec(east.image, ["sleep", "600"], resources={"claims": [{"name": "gpu"}]})
    spec["resourceClaims"] = [{"name": "gpu", "resourceClaimName": "mine"}]
    east.apply(pods.pod(namespace, "claimant", spec))
    await here.told.until(lambda: use() == (0, 1))


def dra(kind: str, spec: dict[str, Any], **metadata: str) -> dict[str, Any]:
    """An object of Dynamic Resource Allocation."""
    api = {"apiVersion": "resource.k8s.io/v1", "kind": kind}
    return api | {"metadata": metadata, "spec": spec}


async def test_queues_tell_their_use(east: TestCluster, here: Settled) -> None:
    namespace = east.namespace()
    queue = await asyncio.to_thread(east.queues, namespace, cpu="1")
    shared = f"{namespace}-{queue}"
    key = f"cluster_queue/{shared}"
    found = await here.told.until(lambda: here.told.items.get(key))
    quota = {one.resource: one for one in found.cluster_queue.quotas}
    assert quota["cpu"].nominal == 1000
    assert f"flavor/{shared}" in here.told.items
    for number in range(2):
        east.apply(_job(east, namespace, f"job-{number}", queue))
    await here.told.until(
        lambda: (
            (
                here.told.items[key].cluster_queue.admitted,
                here.told.items[key].cluster_queue.pending,
            )
            == (1, 1)
        )
    )
    used = {one.resource: one.used for one in here.told.items[key].cluster_queue.quotas}
    assert used["cpu"] == 800

    def waits_here() -> bool:
        local = here.told.items[f"local_queue/{namespace}/{queue}"].local_queue
        return (local.cluster_queue, local.pending, local.active) == (shared, 1, True)

    # Kueue writes the status of either queue by itself.
    await here.told.until(waits_here)


def _job(east: TestCluster, namespace: str, name: str, queue: str) -> dict[str, Any]:
    locked = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    container = {
        "name": "a",
        "image": east.image,
        "command": ["sleep", "600"],
        "resources": {"requests": {"cpu": "800m", "memory": "16Mi"}},
        "securityContext": locked,
    }
    pod = {
        "restartPolicy": "Never",
        "nodeSelector": {"nobody": "has-this"},
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": 65532,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [container],
    }
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "labels": {"kueue.x-k8s.io/queue-name": queue},
        },
        "spec": {"suspend": True, "template": {"spec": pod}},
    }


async def test_what_cannot_be_seen_is_said_and_the_rest_is_told(
    east: TestCluster, tmp_path: Path
) -> None:
    rights = await asyncio.to_thread(granted, east, tmp_path, {"rbac": {"create": False}})
    role = f"narrow-{secrets.token_hex(3)}"
    for kind in ("clusterrole", "clusterrolebinding"):
        east.remove_after(kind, role)
    east.kubectl(
        *("create", "clusterrole", role, "--verb=get,list,watch", "--resource=nodes,pods"),
    )
    account = f"{rights.name}:{rights.name}"
    east.kubectl(
        *("create", "clusterrolebinding", role, f"--clusterrole={role}"),
        f"--serviceaccount={account}",
    )
    async with settled(east, rights) as here:
        await here.told.until(lambda: f"node/{east.node}" in here.told.items)
        told = here.told.items["missing/clusterqueues.kueue.x-k8s.io"].missing
        assert "may not list" in told
        assert "Kueue" in told
        queues = [key for key in here.told.items if key.startswith("cluster_queue/")]
        assert not queues
        spec = pb.QuotaSpec(flavors=[pb.ResourceFlavor(name="a")])
        status = await here.bring_about(quota=spec)
        assert "Kueue is not installed" in status.quota_error
        place = here.assignment(f"space-{secrets.token_hex(3)}")
        status = await here.bring_about(assignments=[place])
        assert "may not" in status.assignment_errors[place.project_id]
        # With the right comes the sight of it, without a restart.
        east.kubectl(
            *("patch", "clusterrole", role, "--type=json", "-p"),
            json.dumps(
                [
                    {
                        "op": "add",
                        "path": "/rules/-",
                        "value": {
                            "apiGroups": ["kueue.x-k8s.io"],
                            "resources": ["clusterqueues"],
                            "verbs": ["get", "list", "watch"],
                        },
                    }
                ]
            ),
        )
        missing = "missing/clusterqueues.kueue.x-k8s.io"
        await here.told.until(lambda: missing not in here.told.items)
