"""News of engines: what wakes the planner and the routes, and what is looked at in time."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from tests.support.waiting import until

from windlass.api.clusters.v1 import clusters_pb2 as pb
from windlass.api.models.v1 import models_pb2
from windlass.api.sessions.v1 import sessions_pb2
from windlass.inference.domain import NOTHING
from windlass.inference.names import Names
from windlass.inference.observed_state import ObservedState


class Statuses:
    """The stream of statuses of the clusters service; the test says what comes."""

    def __init__(self) -> None:
        self.deltas: asyncio.Queue[pb.StatusDelta] = asyncio.Queue()
        self.heard = 0

    async def WatchStatus(self, request: Any, **_: Any) -> AsyncIterator[pb.StatusDelta]:
        while True:
            yield await self.deltas.get()
            self.heard += 1


def status(percent: int | None, **fields: Any) -> pb.WorkloadStatus:
    load = None if percent is None else pb.ServingLoad(cache_percent=percent)
    known = {"workload_id": "eng-1", "phase": pb.PHASE_RUNNING, "endpoint": "unix:///x"}
    return pb.WorkloadStatus(**{**known, **fields}, load=load)


async def test_a_load_alone_wakes_nobody() -> None:
    clusters, changes = Statuses(), list[str]()
    stub: Any = clusters
    names: Any = Names(stub, lambda: None)
    observed = ObservedState(names, stub, stub, lambda: changes.append("now"), engine="builtin")
    _, follower = observed.followers
    following = asyncio.create_task(follower.run())

    async def hear(*statuses: pb.WorkloadStatus, snapshot: bool = False) -> int:
        """Returns how many changes were told of it."""
        before, heard = len(changes), clusters.heard
        clusters.deltas.put_nowait(pb.StatusDelta(snapshot=snapshot, statuses=statuses))
        await until(lambda: clusters.heard > heard)
        return len(changes) - before

    assert await hear(status(None), snapshot=True) == 1
    assert await hear(status(50)) == 0
    assert await hear(status(100)) == 0
    assert await hear(status(None)) == 0
    assert await hear(status(100, endpoint="unix:///y")) == 1
    assert await hear(status(0, endpoint="unix:///y"), status(0, workload_id="eng-2")) == 1
    assert await hear() == 0
    following.cancel()
    await asyncio.gather(following, return_exceptions=True)


class Models:
    """The models service: it knows every version, and counts the questions."""

    def __init__(self) -> None:
        self.asked = list[list[str]]()

    async def WatchModels(self, request: Any, **_: Any) -> AsyncIterator[models_pb2.ModelsDelta]:
        yield models_pb2.ModelsDelta(revision=1)
        await asyncio.Event().wait()

    async def LookupVersions(self, request: Any) -> models_pb2.LookupVersionsResponse:
        self.asked.append(list(request.version_ids))
        known = [
            models_pb2.ServableModel(model=models_pb2.Model(id=one, version_id=one))
            for one in request.version_ids
        ]
        return models_pb2.LookupVersionsResponse(models=known, revision=1)


async def test_who_needs_no_name_has_none_forgotten() -> None:
    models: Any = Models()
    names = Names(models, lambda: None)
    following = asyncio.create_task(names.follower.run())

    async def known() -> bool:
        await names.of({"mv-1", "mv-2"})
        count = len(models.asked)
        await names.of({"mv-1", "mv-2"})
        return len(models.asked) == count

    await until(known)
    models.asked.clear()
    assert await names.of(()) == {}
    assert set(await names.of({"mv-1", "mv-2"})) == {"mv-1", "mv-2"}
    assert models.asked == []
    await names.of({"mv-1"})
    await names.of({"mv-2"})
    assert models.asked == [["mv-2"]], "others are forgotten"
    following.cancel()
    await asyncio.gather(following, return_exceptions=True)


class Capacities(Statuses):
    """The clusters service with one cluster, and the sessions service without a tunnel."""

    def __init__(self) -> None:
        super().__init__()
        self.free, self.versions = 1, ["mv-1"]

    async def ListCapacity(self, request: pb.ListCapacityRequest) -> AsyncIterator[Any]:
        assert request.with_models
        capacity = pb.Capacity(model_versions=self.versions)
        yield pb.ListCapacityResponse(clusters=[pb.Cluster(id="east", capacity=capacity)])
        quotas = [pb.ResourceQuota(flavor="f", resource="cpu", available=self.free)]
        queue = pb.ClusterQueue(name="team-a", quotas=quotas)
        yield pb.ListCapacityResponse(queues=[pb.ClusterQueues(cluster_id="east", queues=[queue])])

    async def ListTunnels(self, request: Any) -> AsyncIterator[Any]:
        yield sessions_pb2.ListTunnelsResponse()


async def test_quota_and_files_are_known_of_each_cluster_and_wake_nobody() -> None:
    clusters, changes = Capacities(), list[str]()
    stub: Any = clusters
    names: Any = Names(stub, lambda: None)
    observed = ObservedState(names, stub, stub, lambda: changes.append("now"), engine="builtin")
    following = asyncio.create_task(observed.followers[1].run())
    clusters.deltas.put_nowait(pb.StatusDelta(snapshot=True))
    await observed.refresh_clusters()
    await until(lambda: observed.known)
    before = len(changes)
    clusters.free, clusters.versions = 7, ["mv-2"]
    await observed.refresh_clusters()
    assert len(changes) == before
    view = await observed.known_view(NOTHING)
    assert view.queues["east"]["team-a"].quotas[0].available == 7
    assert view.clusters["east"].capacity.model_versions == ["mv-2"]
    following.cancel()
    await asyncio.gather(following, return_exceptions=True)
