"""Remote workloads on a worker's real cluster, across restarts of its agent."""

import contextlib
import json
import secrets
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import pytest
from tests.cluster.cluster import TestCluster
from tests.support.waiting import until

from windlass.api.clusters.v1 import clusters_pb2 as pb
from windlass_agent.federation.remote_workloads import GuestDriver
from windlass_agent.kube import Kube
from windlass_agent.kube.resources import JOBS, PODS

pytestmark = pytest.mark.timeout(400)
SECONDS = 120.0
RESOURCES = {"requests": {"cpu": "50m", "memory": "32Mi"}}
# What the control plane fills in.
RESTRICTED = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
POD = {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}


@dataclass
class Worker:
    """A namespace with a queue, and one guest that is to run there."""

    kube: Kube
    image: str
    namespace: str
    queue: str
    cluster_id: str
    id: str

    def guest(
        self, script: str, *, generation: int = 1, attempt: int = 1, desired: str = "RUNNING"
    ) -> pb.Workload:
        container = {"name": "main", "image": self.image, "command": ["sh", "-c", script]}
        main = container | {"resources": RESOURCES, "securityContext": RESTRICTED}
        pod = {"restartPolicy": "Never", "containers": [main], "securityContext": POD}
        spec = {"backoffLimit": 0, "template": {"spec": pod}}
        return pb.Workload(
            id=self.id,
            kind=pb.WORKLOAD_KIND_RUN_TO_COMPLETION,
            project_id="proj_1",
            cluster_id=self.cluster_id,
            generation=generation,
            desired=pb.DesiredState.Value(f"DESIRED_STATE_{desired}"),
            placement=pb.Placement(namespace=self.namespace, queue=self.queue),
            guest=pb.GuestWorkload(
                kind="Job", name="hello", attempt=attempt, spec=json.dumps(spec).encode()
            ),
        )

    @contextlib.asynccontextmanager
    async def life(self) -> AsyncIterator[GuestDriver]:
        """One life of the agent, which leaves everything at its end."""
        driver = GuestDriver(
            self.kube, cluster_id=self.cluster_id, admission=lambda _: None, changed=lambda: None
        )
        await driver.adopt()
        try:
            yield driver
        finally:
            await driver.close()

    async def reach(self, driver: GuestDriver, phase: str) -> pb.WorkloadStatus:
        wanted = pb.Phase.Value(f"PHASE_{phase}")
        found = lambda: [one for one in driver.statuses() if one.phase == wanted]  # noqa: E731
        return (await until(found, SECONDS))[0]

    async def jobs(self) -> list[str]:
        return [job["metadata"]["name"] for job in await self._listed(JOBS.path(self.namespace))]

    async def gone(self) -> None:
        """Until neither the guest's objects nor its pods are left."""

        async def left() -> list[dict[str, Any]]:
            return [
                found
                for resource in (JOBS, PODS)
                for found in await self._listed(resource.path(self.namespace))
            ]

        await until(left, SECONDS, holds=lambda found: not found, every=0.1)

    async def _listed(self, path: str) -> list[dict[str, Any]]:
        return await self.kube.list(path)


def kinds(statuses: list[pb.WorkloadStatus]) -> set[str]:
    """Of what was observed of guests."""
    return {seen.key.partition("/")[2] for one in statuses for seen in one.observations}


@pytest.fixture
async def worker(west: TestCluster) -> AsyncIterator[Worker]:
    namespace = west.namespace()
    queue = west.queues(namespace)
    identifier, cluster = f"fed-{secrets.token_hex(6)}", f"cluster-{secrets.token_hex(4)}"
    async with await Kube.connect(west.kubeconfig) as kube:
        yield Worker(kube, west.image, namespace, queue, cluster, identifier)


async def test_a_guest_is_taken_over_and_never_begun_twice(worker: Worker) -> None:
    async with worker.life() as driver:
        await driver.apply(worker.guest("echo one; sleep 5; echo two"))
        status = await worker.reach(driver, "RUNNING")
        assert json.loads(status.object_status)["ready"] == 1
    async with worker.life() as driver:
        # Before anybody told it what should be.
        (known,) = driver.statuses()
        assert (known.workload_id, known.generation) == (worker.id, 1)
        await driver.apply(worker.guest("echo one; sleep 5; echo two"))
        await worker.reach(driver, "SUCCEEDED")
        await until(lambda: "one\ntwo\n" in [one.log_tail for one in driver.statuses()], SECONDS)
        await until(lambda: "Completed" in kinds(driver.statuses()), SECONDS)
        assert await worker.jobs() == [f"{worker.id}-1"]
        # What has ended stays while it is wanted no more than to be known.
        await driver.apply(worker.guest("x", generation=2, desired="STOPPED"))
        assert (await worker.reach(driver, "SUCCEEDED")).generation == 2
    async with worker.life() as driver:
        await driver.apply(worker.guest("x", generation=3, desired="DELETED"))
        await worker.gone()
        await until(lambda: not driver.statuses(), SECONDS)


async def test_another_attempt_begins_when_nothing_of_the_last_is_left(worker: Worker) -> None:
    async with worker.life() as driver:
        await driver.apply(worker.guest("sleep 3600"))
        await worker.reach(driver, "RUNNING")
        await driver.apply(worker.guest("true", generation=2, attempt=2))
        seen = set[tuple[str, ...]]()

        async def succeeded() -> list[pb.WorkloadStatus]:
            seen.add(tuple(sorted(await worker.jobs())))
            return [one for one in driver.statuses() if one.phase == pb.PHASE_SUCCEEDED]

        (status,) = await until(succeeded, SECONDS, every=0.05)
        assert status.generation == 2
        assert (f"{worker.id}-1", f"{worker.id}-2") not in seen
        assert await worker.jobs() == [f"{worker.id}-2"]


async def test_an_agent_without_contact_ends_what_it_has_adopted(worker: Worker) -> None:
    async with worker.life() as driver:
        await driver.apply(worker.guest("sleep 3600"))
        await worker.reach(driver, "RUNNING")
    async with worker.life() as driver:
        assert driver.knows(worker.id)
        # All that is known of it in silence.
        stopped = pb.Workload(id=worker.id, generation=1, desired=pb.DESIRED_STATE_STOPPED)
        await driver.apply(stopped)
        await worker.gone()
        await worker.reach(driver, "STOPPED")


async def test_what_the_cluster_refuses_fails_with_its_words(worker: Worker) -> None:
    broken = worker.guest("true")
    spec = json.loads(broken.guest.spec)
    spec["template"]["spec"]["containers"][0]["resources"] = {"limits": {"cpu": "a lot"}}
    broken.guest.spec = json.dumps(spec).encode()
    async with worker.life() as driver:
        await driver.apply(broken)
        status = await worker.reach(driver, "FAILED")
        assert status.reason == "InvalidObject"
        assert "a lot" in status.message or "quantit" in status.message
        assert not status.object_status


async def test_what_is_in_the_way_is_said_while_it_lasts(worker: Worker, west: TestCluster) -> None:
    quota = {"metadata": {"name": "none", "namespace": worker.namespace}}
    kind = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "spec": {"hard": {"count/jobs.batch": "0"}},
    }
    west.apply(kind | quota)

    def counted() -> bool:
        found = west.get("resourcequota", "none", "-n", worker.namespace)
        return "count/jobs.batch" in found.get("status", {}).get("hard", {})

    await until(counted, SECONDS)
    async with worker.life() as driver:
        await driver.apply(worker.guest("true"))
        await until(lambda: "Forbidden" in kinds(driver.statuses()), SECONDS)
        assert "exceeded quota" in driver.statuses()[0].observations[0].message
        west.kubectl("delete", "resourcequota", "none", "-n", worker.namespace)
        await worker.reach(driver, "SUCCEEDED")
