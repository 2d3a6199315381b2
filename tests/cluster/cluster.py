"""A running cluster as a test sees it."""

import json
import secrets
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from tests.cluster.kubectl import Kubectl
from tests.cluster.objects import queues as kueue
from tests.cluster.objects import volumes as python
from tests.cluster.objects.pods import pod, spec
from tests.cluster.provision import network
from tests.cluster.provision.keeper import order
from tests.cluster.provision.site import Site
from tests.support.waiting import wait_until

RESTRICTED = {"pod-security.kubernetes.io/enforce": "restricted"}
# Leaves the node's own pods their usual place, and hundreds of pods none on nodes that are not.
FAKE = {"key": "kwok.x-k8s.io/node", "value": "fake", "effect": "NoSchedule"}


@dataclass
class TestCluster:
    """One cluster, shared with other tests; what this test makes goes when its block ends."""

    __test__ = False

    name: str
    # An administrator's.
    kubeconfig: Path
    # This machine, as pods reach it.
    host: str
    # The URL of the API server.
    api: str
    # An image with a shell that runs as non-root.
    image: str
    # The name of a node that runs pods for real.
    node: str
    kubectl: Kubectl
    made: ExitStack
    # None where the cluster is somebody's own, over whose nodes we have no power.
    site: Site | None = None

    def apply(self, *objects: Mapping[str, Any]) -> None:
        """Applies objects, in order."""
        listed = {"apiVersion": "v1", "kind": "List", "items": list(objects)}
        self.kubectl("apply", "--server-side", "--force-conflicts", "-f-", input=json.dumps(listed))

    def get(self, *words: str) -> dict[str, Any]:
        """The object that `kubectl get ... -o json` prints."""
        found: dict[str, Any] = json.loads(self.kubectl("get", *words, "-o", "json"))
        return found

    def namespace(self, prefix: str = "test", labels: Mapping[str, str] = RESTRICTED) -> str:
        """A namespace of the test's own, by default under Pod Security `restricted`.

        Pods may be made there: it has its account, and Kueue, whose view of namespaces may lag
        after a fault, knows it.
        """
        name = f"{prefix}-{secrets.token_hex(3)}"
        self.remove_after("namespace", name)
        self.apply(_named("v1", "Namespace", name, labels=dict(labels)))
        probe = json.dumps(pod(name, "probe", spec(self.image, ["true"])))
        tried = ("create", "--dry-run=server", "-f", "-")
        wait_until(lambda: self.kubectl.works(*tried, input=probe), f"pods may be made in {name}")
        return name

    def queues(self, namespace: str, **wishes: Any) -> str:
        """A LocalQueue with a ClusterQueue and a flavor of its own; `kueue.Wishes` says of what."""
        objects = kueue.objects(namespace, kueue.Wishes(**wishes))
        for made in objects:
            self.remove_after(made["kind"], made["metadata"]["name"], namespace)
        self.apply(*objects)
        queue: str = objects[-1]["metadata"]["name"]
        path = f"localqueue/{queue}"
        self.kubectl("wait", "--for=condition=Active", path, "-n", namespace, "--timeout=60s")
        return queue

    def volumes(self, namespace: str) -> python.Python:
        """This machine's Python, with torch, for the pods of a namespace."""
        self.own()
        brought = python.Python.of(namespace, python.sources())
        for volume in brought.persistent_volumes:
            self.remove_after("persistentvolume", volume["metadata"]["name"])
        self.apply(*brought.persistent_volumes, *brought.claims)
        return brought

    def offer(self, resource: str, count: int, node: str = "") -> None:
        """Has a node offer at least so many of a resource, and waits until pods may have them."""
        self.own()
        node = node or self.node
        if self._offered(node, resource) < count:
            capacity = {"status": {"capacity": {resource: str(count)}}}
            patch = ("--subresource=status", "--type=merge", "-p", json.dumps(capacity))
            self.kubectl("patch", "node", node, *patch)
        wait_until(lambda: self._offered(node, resource) >= count, f"{node} offers {resource}")

    def kwok_nodes(
        self, count: int, resources: Mapping[str, str] | None = None, *, player: str = "fake"
    ) -> list[str]:
        """Nodes that only seem to run pods; a pod that may go there tolerates `FAKE`.

        `player` names a kwok of the test's own that plays them.
        """
        if player == "fake":
            order(self.own().folder / "control", "start", "kwok")
        group = f"kwok-{secrets.token_hex(3)}"
        self.made.callback(self._remove_nodes, group)
        capacity = {"cpu": "32", "memory": "256Gi", "pods": "110", **(resources or {})}
        names = [f"{group}-{number}" for number in range(count)]
        self.apply(*(_fake_node(name, group, capacity, player) for name in names))
        ready = ("wait", "--for=condition=Ready", "node", "-l", f"kwok={group}", "--timeout=120s")
        self.kubectl(*ready)
        return names

    def remove_after(self, kind: str, name: str, namespace: str = "default") -> None:
        """Has an object removed at the end of the test."""
        self.made.callback(self._remove, kind, name, namespace)

    def restart(self, program: str) -> None:
        """Kills a program ("etcd", "apiserver", "kubelet"...) and starts it again."""
        order(self.own().folder / "control", "restart", program)

    def stop(self, program: str) -> None:
        """Kills a program, which stays away until `start` or the end of the test."""
        self.made.callback(self.start, program)
        order(self.own().folder / "control", "stop", program)

    def start(self, program: str) -> None:
        """Starts a program that was stopped."""
        order(self.own().folder / "control", "start", program)

    @contextmanager
    def cut(self, kind: str = "all") -> Iterator[None]:
        """Loses what goes between this machine and the cluster, "all" or what is "inbound".

        `kubectl` works on, from within the cluster; so mark the test `alone`.
        """
        site, outside = self.own(), self.kubectl
        inside = ["nsenter", "--net", f"--target={site.pid}"]
        network.cut(site, kind)
        self.kubectl = replace(outside, prefix=inside)
        try:
            yield
        finally:
            self.kubectl = outside
            network.restore(site)

    def device_class(self) -> str:
        """The DeviceClass of a DRA driver, which only somebody's own cluster may lack: a skip."""
        name = "gpu.example.com"
        if self.site is None and not self.works("get", "deviceclass", name):
            pytest.skip("the cluster of KUBECONFIG has no dra-example-driver")
        return name

    def works(self, *words: str) -> bool:
        """True where a kubectl command succeeds."""
        return self.kubectl.works(*words)

    def own(self) -> Site:
        """The site of the cluster; on somebody's own, the test is skipped."""
        if self.site is None:
            pytest.skip("needs power over the nodes, so a cluster that the tests start themselves")
        return self.site

    def _offered(self, node: str, resource: str) -> int:
        return int(self.get("node", node)["status"]["allocatable"].get(resource, "0"))

    def _remove(self, kind: str, name: str, namespace: str = "default") -> None:
        self.kubectl(
            *("delete", kind, name, "-n", namespace, "--ignore-not-found", "--wait=false"),
            check=False,
        )
        if kind == "namespace":
            pods = ("delete", "pods", "--all", "-n", name, "--wait=false", "--grace-period=1")
            self.kubectl(*pods, check=False)

    def _remove_nodes(self, group: str) -> None:
        self.kubectl("delete", "node", "-l", f"kwok={group}", "--wait=false", check=False)


def _fake_node(name: str, group: str, capacity: Mapping[str, str], player: str) -> dict[str, Any]:
    labels = {
        "kwok": group,
        "type": "kwok",
        "kubernetes.io/os": "linux",
        "kubernetes.io/hostname": name,
    }
    node = _named("v1", "Node", name, labels=labels)
    node["metadata"]["annotations"] = {"kwok.x-k8s.io/node": player}
    node["spec"] = {"taints": [FAKE]}
    node["status"] = {"capacity": dict(capacity), "allocatable": dict(capacity)}
    return node


def _named(version: str, kind: str, name: str, *, labels: dict[str, str]) -> dict[str, Any]:
    metadata = {"name": name, "labels": labels}
    return {"apiVersion": version, "kind": kind, "metadata": metadata}
