"""Memory of the agent in its pod, watching 1,000 pods of a real cluster.

It is installed by its chart; the pods, on nodes that only seem to run them, look as those of
jobs do. Needs root and the programs of `make cluster`.
"""

import asyncio
import time
from contextlib import ExitStack
from typing import Any

from tests.bench.figures import Figure, Options, at_most, plain
from tests.cluster.cluster import FAKE, TestCluster
from tests.cluster.fixtures import ours, unavailable
from tests.cluster.provision import lease
from tests.cluster.stages.release import Installed, Platform, installed
from tests.support.waiting import wait_until

PODS, PODS_OF_A_NODE = 1000, 100
GPU = "nvidia.com/gpu"
SETTLE_SECONDS = 20
MIB = 1024


async def measure(options: Options) -> list[Figure]:
    """Resident memory before, with the pods, and at its highest."""
    if reason := unavailable():
        raise RuntimeError(reason)
    return await asyncio.to_thread(_measure, PODS // 10 if options.quick else PODS)


def _measure(pods: int) -> list[Figure]:
    with ExitStack() as made:
        cluster = ours(made.enter_context(lease.use("bench")), made)
        plane, agent = made.enter_context(installed(cluster))
        wait_until(lambda: cluster.node in plane.nodes(agent.id), "inventory")
        before = _memory(agent, "VmRSS")
        nodes = cluster.kwok_nodes(-(-pods // PODS_OF_A_NODE), {GPU: str(PODS_OF_A_NODE)})
        _put_pods(cluster, nodes, pods)
        wait_until(lambda: _running(plane, agent.id) == pods, f"{pods} pods are told", 300)
        time.sleep(SETTLE_SECONDS)
        after, peak = _memory(agent, "VmRSS"), _memory(agent, "VmHWM")
    return [
        at_most(f"agent_memory_{pods}_pods", after, "MiB", 100),
        plain(f"agent_memory_{pods}_pods_peak", peak, "MiB"),
        plain("agent_memory_few_pods", before, "MiB"),
    ]


def _memory(agent: Installed, field: str) -> float:
    """The agent is the first process of its pod."""
    words = ("exec", f"deployment/{agent.name}", "-n", agent.name, "--", "cat", "/proc/1/status")
    for line in agent.cluster.kubectl(*words).splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) / MIB
    raise LookupError(field)


def _running(plane: Platform, cluster_id: str) -> int:
    return sum(
        one["running"]
        for node in plane.nodes(cluster_id).values()
        for one in node["accelerators"]
        if one["resource"] == GPU
    )


def _put_pods(cluster: TestCluster, nodes: list[str], count: int) -> None:
    namespace = cluster.namespace("bench", labels={})
    for start in range(0, count, PODS_OF_A_NODE):
        names = [f"pod-{number}" for number in range(start, min(start + PODS_OF_A_NODE, count))]
        node = nodes[start // PODS_OF_A_NODE]
        cluster.apply(*(_pod(namespace, name, node, cluster.image) for name in names))


def _pod(namespace: str, name: str, node: str, image: str) -> dict[str, Any]:
    """As large as one of a job: labels, environment, volumes, a security context."""
    labels = {
        f"windlass.dev/{key}": f"{key}-{name}"
        for key in ("job", "attempt", "project", "workload", "cluster")
    }
    env = [{"name": f"SETTING_{number}", "value": "x" * 60} for number in range(20)]
    container = {
        "name": "trainer",
        "image": image,
        "env": env,
        "resources": {"limits": {GPU: "1", "cpu": "100m", "memory": "1Gi"}},
        "volumeMounts": [
            {"name": f"volume-{number}", "mountPath": f"/mnt/{number}"} for number in range(4)
        ],
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace, "labels": labels},
        "spec": {
            "nodeSelector": {"kubernetes.io/hostname": node},
            "tolerations": [{"key": FAKE["key"], "operator": "Exists"}],
            "containers": [container],
            "volumes": [{"name": f"volume-{number}", "emptyDir": {}} for number in range(4)],
        },
    }
