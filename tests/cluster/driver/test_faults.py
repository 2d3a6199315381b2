"""Faults of the cluster itself under the driver: every job ends right, once, none is doubled."""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest
from tests.cluster.cluster import TestCluster
from tests.cluster.objects.chart import kubeconfig_of
from tests.cluster.stages.driven import MIB, Driven, driven
from tests.support.waiting import stays, until, wait_until

from windlass.api.clusters.v1 import clusters_pb2 as pb
from windlass.api.runner.v1 import runner_pb2
from windlass_agent.kube import Expired, Kube, client
from windlass_agent.kube.resources import JOBS, PODS, WORKLOADS

pytestmark = [pytest.mark.alone, pytest.mark.timeout(600)]
SMALL = 64 * MIB
DELETED = pb.DESIRED_STATE_DELETED


@pytest.fixture
async def world(east: TestCluster, database_url: str, tmp_path: Path) -> AsyncIterator[Driven]:
    async with driven(east, database_url, tmp_path) as made:
        yield made


async def begin(world: Driven, *jobs: str) -> None:
    """Small jobs that run, and have said so."""
    for job in jobs:
        await world.put(job, memory_bytes=SMALL)
    await world.reach_all(pb.PHASE_RUNNING, *jobs)
    await until(lambda: all(world.desk.log(job) == b"begun\n" for job in jobs), 30)


async def succeed(world: Driven, *jobs: str, generation: int = 1) -> None:
    for job in jobs:
        await world.tell(job, "succeed")
        await world.reach(job, pb.PHASE_SUCCEEDED, generation=generation)


async def ended_once(world: Driven, *jobs: str) -> None:
    """Each of these succeeded in one piece, was told so once, and has all of its log."""
    succeeded = runner_pb2.OUTCOME_SUCCEEDED
    told = [one.run.job_id for one in world.desk.finished if one.finish.outcome == succeeded]
    assert sorted(told) == sorted(jobs)
    for job in jobs:
        assert not {pb.PHASE_FAILED, pb.PHASE_STOPPED} & set(world.phases[job]), job
        await world.logged(job, b"begun\nsucceed\n")
        assert len(await world.objects(JOBS, job)) == 1
        assert len(await world.objects(PODS, job)) == 1


async def workdir_of(world: Driven, job: str) -> Path:
    """The node's folder of it, for when its pod cannot be reached."""
    (pod,) = await world.objects(PODS, job)
    node = Path(f"/proc/{world.cluster.own().pid}/root")
    volumes = node / f"var/lib/kubelet/pods/{pod['metadata']['uid']}/volumes"
    return volumes / "kubernetes.io~empty-dir" / "work"


def under_rbac(world: Driven) -> None:
    """Has agents work with an account whose rights a server must first read, as they do."""
    cluster, namespace = world.cluster, world.namespace
    cluster.remove_after("clusterrolebinding", namespace)
    cluster.apply(
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": namespace},
            "roleRef": {
                "apiGroup": "rbac.authorization.k8s.io",
                "kind": "ClusterRole",
                "name": "cluster-admin",
            },
            "subjects": [{"kind": "ServiceAccount", "name": "default", "namespace": namespace}],
        }
    )
    token = cluster.kubectl("create", "token", "default", "-n", namespace, "--duration=1h")
    cluster.kubeconfig = world.folder / "agent.kubeconfig"
    cluster.kubeconfig.write_text(json.dumps(kubeconfig_of(cluster, token.strip())))


async def test_a_lost_nodes_job_is_replaced(world: Driven) -> None:
    """Promptly; and what its runner says after all counts for nothing."""
    async with world.agent():
        await begin(world, "ftjob-lost")
        await asyncio.to_thread(world.cluster.stop, "kubelet")
        # 20 s until the node counts as lost, then 5 s for which our pods tolerate that.
        status = await world.reach("ftjob-lost", pb.PHASE_FAILED, reason="NodeLost", seconds=60)
        assert "stopped answering" in status.message
        await world.put("ftjob-lost", generation=2, attempt=2, memory_bytes=SMALL)
        await world.reach("ftjob-lost", pb.PHASE_PENDING, generation=2)
        await asyncio.to_thread(world.cluster.start, "kubelet")
        await world.reach("ftjob-lost", pb.PHASE_RUNNING, generation=2)
        await until(lambda: world.pods("ftjob-lost"), holds=lambda pods: len(pods) <= 1, every=0.1)
        await succeed(world, "ftjob-lost", generation=2)
        (finish,) = world.desk.finished
        assert finish.run.attempt == 2
        (job,) = await world.objects(JOBS, "ftjob-lost")
        assert job["metadata"]["labels"]["windlass.dev/attempt"] == "2"


async def test_a_cordoned_node_is_waited_for(world: Driven) -> None:
    """It is somebody's own doing, so the job waits until he undoes it."""
    node = world.cluster.node
    async with world.agent():
        world.cluster.kubectl("cordon", node)
        try:
            await world.put("ftjob-waits", memory_bytes=SMALL)
            await world.reach("ftjob-waits", pb.PHASE_PENDING, reason="Unschedulable")
            # Longer than every patience.
            await stays(lambda: world.statuses["ftjob-waits"].phase == pb.PHASE_PENDING, 7)
        finally:
            world.cluster.kubectl("uncordon", node)
        await world.reach("ftjob-waits", pb.PHASE_RUNNING)
        await succeed(world, "ftjob-waits")


@pytest.mark.parametrize("program", ["apiserver", "etcd"])
async def test_the_clusters_api_is_away(world: Driven, program: str) -> None:
    """One job runs on, one ends meanwhile, one is to begin."""
    under_rbac(world)
    async with world.agent():
        await begin(world, "ftjob-runs", "ftjob-ends")
        work = await workdir_of(world, "ftjob-ends")
        await asyncio.to_thread(world.cluster.stop, program)
        (work / "draft").write_text("succeed")
        (work / "draft").rename(work / "do")
        await world.put("ftjob-amid", memory_bytes=SMALL)
        await world.reach("ftjob-amid", pb.PHASE_PENDING, reason="ApiUnavailable")
        await asyncio.to_thread(world.cluster.start, program)
        await world.reach("ftjob-ends", pb.PHASE_SUCCEEDED)
        await world.reach("ftjob-amid", pb.PHASE_RUNNING)
        assert world.statuses["ftjob-runs"].phase == pb.PHASE_RUNNING
        await succeed(world, "ftjob-runs", "ftjob-amid")
        await ended_once(world, "ftjob-runs", "ftjob-ends", "ftjob-amid")


async def test_watches_expire(world: Driven, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each lasts a second, and every other one begins where the server remembers nothing."""
    expired = forget(monkeypatch)
    # From before its start it knows no change.
    await asyncio.to_thread(world.cluster.restart, "apiserver")
    ready = ("get", "--raw", "/readyz")
    await asyncio.to_thread(wait_until, lambda: world.cluster.works(*ready), "the API is back")
    async with world.agent():
        await begin(world, "ftjob-ends", "ftjob-also", "ftjob-goes")
        await succeed(world, "ftjob-ends")
        await world.put("ftjob-goes", generation=2, desired=DELETED)
        await world.gone("ftjob-goes")
        await until(lambda: all(expired[one.path()] for one in (JOBS, PODS, WORKLOADS)), 60)
        await succeed(world, "ftjob-also")
        await ended_once(world, "ftjob-ends", "ftjob-also")


def forget(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Has watches begin in the distant past; counts by path how often the server said 410."""
    turns, expired = Counter[str](), Counter[str]()
    watch = Kube.watch

    async def forgetful(
        self: Kube, path: str, *, resource_version: str, **selectors: str
    ) -> AsyncGenerator[tuple[str, dict[str, Any]]]:
        turns[path] += 1
        version = resource_version if turns[path] % 2 else "1"
        try:
            events = watch(self, path, resource_version=version, **selectors)
            async with aclosing(events):
                async for event in events:
                    yield event
        except Expired:
            expired[path] += 1
            raise

    monkeypatch.setattr(Kube, "watch", forgetful)
    monkeypatch.setattr(client, "_WATCH_SECONDS", (1, 1))
    return expired
