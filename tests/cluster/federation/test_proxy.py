"""Proxy agent on a real cluster, across restarts, with a scripted control plane."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass, field
from typing import Any

import pytest
from tests.cluster.cluster import TestCluster
from tests.support.waiting import until

from windlass.api.clusters.v1 import clusters_pb2 as pb
from windlass.api.federation.v1 import federation_pb2
from windlass_agent.federation.proxy import Proxy
from windlass_agent.kube import Kube

pytestmark = pytest.mark.timeout(300)
SECONDS = 90.0
POD = {"restartPolicy": "Never", "containers": [{"name": "main", "image": "busybox"}]}


@dataclass
class Desk:
    """Takes what an agent tells."""

    told: dict[str, federation_pb2.FederatedObject] = field(default_factory=dict)

    async def report_objects(self, objects: Iterable[federation_pb2.FederatedObject]) -> None:
        self.told |= {one.name: one for one in objects}


@dataclass
class Site:
    cluster: TestCluster
    kube: Kube
    namespace: str
    desk: Desk = field(default_factory=Desk)

    def apply(self, name: str) -> None:
        spec = {"managedBy": "windlass.dev/federation", "template": {"spec": POD}}
        metadata = {"name": name, "namespace": self.namespace}
        self.cluster.apply(
            {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec}
        )

    @contextlib.asynccontextmanager
    async def life(self) -> AsyncIterator[Proxy]:
        """One life of the agent, which knows nothing of the one before."""
        desk: Any = self.desk
        proxy = Proxy(
            self.kube, desk, is_ours=lambda name: name == self.namespace, changed=lambda: None
        )
        self.desk.told.clear()
        await proxy.adopt()
        telling = asyncio.create_task(proxy.run("session-1"))
        try:
            yield proxy
        finally:
            telling.cancel()
            await asyncio.gather(telling, return_exceptions=True)
            await proxy.close()

    async def told(self, name: str, *, deleting: bool = False) -> federation_pb2.FederatedObject:
        def there() -> federation_pb2.FederatedObject | None:
            found = self.desk.told.get(name)
            return found if found is not None and found.deleting == deleting else None

        found: federation_pb2.FederatedObject = await until(there, SECONDS)
        return found

    def job(self, name: str) -> dict[str, Any]:
        return self.cluster.get("job", name, "-n", self.namespace)

    def note(self, uid: str, name: str, generation: int, **fields: Any) -> pb.Workload:
        note = pb.ObjectNote(uid=uid, namespace=self.namespace, name=name, kind="Job", **fields)
        return pb.Workload(
            id=f"note-{name}",
            kind=pb.WORKLOAD_KIND_STATUS_MIRROR,
            generation=generation,
            desired=pb.DESIRED_STATE_RUNNING,
            note=note,
        )


@pytest.fixture
async def site(east: TestCluster) -> AsyncIterator[Site]:
    async with await Kube.connect(east.kubeconfig) as kube:
        yield Site(east, kube, east.namespace())


def status(**values: Any) -> pb.WorkloadStatus:
    return pb.WorkloadStatus(object_status=json.dumps(values).encode())


async def test_an_object_is_held_until_it_may_go_whoever_looks_after_it(site: Site) -> None:
    site.apply("hello")
    async with site.life():
        uid = (await site.told("hello")).uid
        assert site.job("hello")["metadata"]["finalizers"] == ["windlass.dev/federation"]
    words = ("delete", "job", "hello", "-n", site.namespace, "--wait=false")
    site.cluster.kubectl(*words)
    async with site.life() as proxy:
        await site.told("hello", deleting=True)
        await proxy.apply(site.note(uid, "hello", 1))
        (known,) = proxy.statuses()
        assert known.phase == pb.PHASE_RUNNING
        assert site.cluster.works("get", "job", "hello", "-n", site.namespace)
        await proxy.apply(site.note(uid, "hello", 2, released=True))
        gone = [pb.PHASE_STOPPED]
        await until(lambda: [one.phase for one in proxy.statuses()] == gone, SECONDS)
    assert not site.cluster.works("get", "job", "hello", "-n", site.namespace)


async def test_the_api_server_takes_what_attempts_after_one_another_say(site: Site) -> None:
    site.apply("twice")
    async with site.life() as proxy:
        uid = (await site.told("twice")).uid
        first = {"startTime": "2026-11-21T10:00:00Z", "active": 1, "ready": 1, "failed": 1}
        await proxy.apply(site.note(uid, "twice", 1, cluster="west", guest=status(**first)))
        await until(lambda: site.job("twice").get("status", {}).get("failed") == 1, SECONDS)
        # Lost, and begun anew elsewhere.
        ends = [
            {"type": kind, "status": "True", "lastTransitionTime": "2026-11-21T12:00:00Z"}
            for kind in ("SuccessCriteriaMet", "Complete")
        ]
        second = {
            "startTime": "2026-11-21T11:00:00Z", "completionTime": "2026-11-21T12:00:00Z",
            "succeeded": 1, "conditions": ends,
        }  # fmt: skip
        await proxy.apply(site.note(uid, "twice", 2, cluster="north", guest=status(**second)))
        await until(lambda: site.job("twice")["status"].get("succeeded") == 1, SECONDS)
        found = site.job("twice")
        assert found["status"]["startTime"] == first["startTime"]
        assert found["status"]["failed"] == 1
        assert "active" not in found["status"]
        assert found["metadata"]["annotations"]["windlass.dev/cluster"] == "north"
        await proxy.apply(site.note(uid, "twice", 3, released=True))
        await until(lambda: "finalizers" not in site.job("twice")["metadata"], SECONDS)


async def test_an_object_of_the_same_name_is_another_one(site: Site) -> None:
    site.apply("again")
    async with site.life() as proxy:
        await site.told("again")
        await proxy.apply(site.note("uid-of-another", "again", 1, released=True))
        assert [one.phase for one in proxy.statuses()] == [pb.PHASE_STOPPED]
        assert site.job("again")["metadata"]["finalizers"] == ["windlass.dev/federation"]
        uid = (await site.told("again")).uid
        await proxy.apply(site.note(uid, "again", 2, released=True))
        await until(lambda: "finalizers" not in site.job("again")["metadata"], SECONDS)
