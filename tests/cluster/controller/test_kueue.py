"""Kueue, through our client: what it decides, and the quotas that we write."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

from tests.cluster.cluster import TestCluster
from tests.support.waiting import until

from windlass.api.clusters.v1 import clusters_pb2 as pb
from windlass_agent.kube import Kube
from windlass_agent.kube.resources import (
    CLUSTERQUEUES,
    COHORTS,
    JOBS,
    LOCALQUEUES,
    RESOURCEFLAVORS,
    WORKLOADPRIORITYCLASSES,
    WORKLOADS,
)
from windlass_agent.kueue import Kueue, Workload, reading, writing


@asynccontextmanager
async def reached(cluster: TestCluster) -> AsyncIterator[Kube]:
    async with await Kube.connect(cluster.kubeconfig) as kube:
        yield kube


def job(cluster: TestCluster, namespace: str, name: str, **labels: str) -> dict[str, Any]:
    """A job that runs until it is stopped, and asks for half a processor."""
    container = {
        "name": "main",
        "image": cluster.image,
        "command": ["sh", "-c", "trap 'exit 0' TERM; sleep 3600 & wait"],
        "resources": {"requests": {"cpu": "500m", "memory": "16Mi"}},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
        },
    }
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "labels": {"kueue.x-k8s.io/queue-name": "main"} | labels,
        },
        "spec": {
            "suspend": True,
            "template": {
                "spec": {
                    "restartPolicy": "Never",
                    "terminationGracePeriodSeconds": 1,
                    "securityContext": {
                        "runAsNonRoot": True,
                        "runAsUser": 10_001,
                        "seccompProfile": {"type": "RuntimeDefault"},
                    },
                    "containers": [container],
                }
            },
        },
    }


class Queued:
    """Jobs of a namespace and their Workloads."""

    def __init__(self, cluster: TestCluster, kube: Kube, namespace: str) -> None:
        self._cluster = cluster
        self._kube = kube
        self._namespace = namespace
        self.kueue = Kueue(kube)

    async def submit(self, name: str, **labels: str) -> Callable[[], Awaitable[Workload | None]]:
        made = await self._kube.apply(
            JOBS.path(self._namespace, name), job(self._cluster, self._namespace, name, **labels)
        )
        uid = made["metadata"]["uid"]
        return lambda: self.kueue.workload_of(self._namespace, uid)

    async def in_a_later_second(self, name: str) -> bool:
        """True where what is made now is younger than all that was made of a job so far."""
        labels = f"kueue.x-k8s.io/job-uid={await self._uid(name)}"
        (made,) = await self._kube.list(WORKLOADS.path(self._namespace), label_selector=labels)
        then = datetime.fromisoformat(made["metadata"]["creationTimestamp"])
        return datetime.now(UTC) - then > timedelta(seconds=1)

    async def _uid(self, name: str) -> str:
        found = await self._kube.get(JOBS.path(self._namespace, name))
        return str(found["metadata"]["uid"])


async def test_a_job_waits_in_its_place_until_there_is_room(east: TestCluster) -> None:
    namespace = east.namespace()
    east.queues(namespace, cpu="600m")
    async with reached(east) as kube:
        queued = Queued(east, kube, namespace)
        first = await queued.submit("first")
        admitted = await until(first, 120, holds=lambda found: found.admitted)
        assert admitted.quota_reserved
        assert admitted.cluster_queue == f"{namespace}-main"
        assert admitted.flavors == {"cpu": f"{namespace}-main", "memory": f"{namespace}-main"}
        second = await queued.submit("second")
        waits = await until(second, 120, holds=lambda found: found.waiting)
        assert waits.waiting is not None
        assert waits.waiting.reason == "Pending"
        assert "insufficient unused quota for cpu" in waits.waiting.message
        # Kueue orders by the second in which each was made.
        await until(lambda: queued.in_a_later_second("second"), 120, holds=bool)
        third = await queued.submit("third")
        behind = await until(third, 120, holds=lambda found: found.waiting)

        async def places() -> dict[str, int]:
            return await queued.kueue.pending(f"{namespace}-main")

        found = await until(places, 120, holds=lambda found: len(found) == 2)
        assert found == {f"{namespace}/{waits.name}": 1, f"{namespace}/{behind.name}": 2}
        await kube.delete(JOBS.path(namespace, "first"))
        await until(second, 120, holds=lambda found: found.admitted)


async def test_an_inactive_workload_is_evicted_and_comes_back(east: TestCluster) -> None:
    namespace = east.namespace()
    east.queues(namespace)
    async with reached(east) as kube:
        queued = Queued(east, kube, namespace)
        only = await queued.submit("only")
        found = await until(only, 120, holds=lambda found: found.admitted)
        await queued.kueue.set_active(namespace, found.name, False)
        stopped = await until(only, 120, holds=lambda found: not found.admitted)
        assert not stopped.active
        assert stopped.evicted is not None
        assert stopped.evicted.reason == "Deactivated"

        async def suspended() -> Any:
            return await kube.get(JOBS.path(namespace, "only"))

        await until(suspended, 120, holds=lambda found: found["spec"]["suspend"])
        await queued.kueue.set_active(namespace, found.name, True)
        await until(only, 120, holds=lambda found: found.admitted)


async def test_a_higher_priority_takes_the_place_of_a_lower(east: TestCluster) -> None:
    namespace = east.namespace()
    within = {"preemption": {"withinClusterQueue": "LowerPriority"}}
    east.queues(namespace, cpu="600m", spec=within)
    name = f"{namespace}-urgent"
    async with reached(east) as kube:
        path = WORKLOADPRIORITYCLASSES.path(name=name)
        made = await kube.apply(path, writing.priority_class(pb.PriorityClass(name=name, value=9)))
        assert reading.priority_class(made) == pb.PriorityClass(name=name, value=9)
        try:
            queued = Queued(east, kube, namespace)
            low = await queued.submit("low")
            await until(low, 120, holds=lambda found: found.admitted)
            high = await queued.submit("high", **{"kueue.x-k8s.io/priority-class": name})
            found = await until(high, 120, holds=lambda found: found.admitted)
            assert (found.priority, found.priority_class) == (9, name)
            gone = await until(low, 120, holds=lambda found: found.evicted)
            assert gone.evicted is not None
            assert gone.evicted.reason == "Preempted"
            assert gone.preempted is not None
            assert gone.preempted.reason == "InClusterQueue"
        finally:
            await kube.delete(path)


async def test_quotas_are_written_and_read(east: TestCluster) -> None:
    namespace = east.namespace()
    flavor = pb.ResourceFlavor(
        name=f"{namespace}-spot",
        node_labels={"windlass.test/pool": "spot"},
        tolerations=[pb.Toleration(key="spot", operator="Exists", effect="NoSchedule")],
    )
    cohort = pb.Cohort(
        name=f"{namespace}-all",
        fair_weight_millis=1500,
        quotas=[pb.ResourceQuota(flavor=flavor.name, resource="cpu", nominal=4000)],
    )
    queue = pb.ClusterQueue(
        name=namespace,
        cohort=cohort.name,
        quotas=[
            pb.ResourceQuota(
                flavor=flavor.name,
                resource="cpu",
                nominal=1500,
                borrowing_limit=500,
                lending_limit=0,
            ),
            pb.ResourceQuota(flavor=flavor.name, resource="memory", nominal=2**30),
        ],
        fair_weight_millis=2000,
        reclaim_within_cohort="Any",
        within_cluster_queue="LowerPriority",
    )
    local = pb.LocalQueue(namespace=namespace, name="main", cluster_queue=queue.name)
    paths = [
        RESOURCEFLAVORS.path(name=flavor.name),
        COHORTS.path(name=cohort.name),
        CLUSTERQUEUES.path(name=queue.name),
        LOCALQUEUES.path(namespace, local.name),
    ]
    async with reached(east) as kube:
        try:
            made = await kube.apply(paths[0], writing.flavor(flavor))
            assert reading.flavor(made) == flavor
            made = await kube.apply(paths[1], writing.cohort(cohort))
            assert reading.cohort(made) == cohort
            await kube.apply(paths[2], writing.cluster_queue(queue))
            await kube.apply(paths[3], writing.local_queue(local))

            async def read() -> pb.ClusterQueue:
                return reading.cluster_queue(await kube.get(paths[2]))

            found = await until(read, 120, holds=lambda found: found.active)
            queue.active = True
            assert found == queue

            async def door() -> pb.LocalQueue:
                return reading.local_queue(await kube.get(paths[3]))

            local.active = True
            assert await until(door, 120, holds=lambda found: found.active) == local
        finally:
            for path in reversed(paths):
                await kube.delete(path)
