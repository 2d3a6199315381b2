"""News of engines: what wakes the planner and the routes, and what is looked at in time."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from tests.support.waiting import until

from windlass.api.clusters.v1 import clusters_pb2 as pb
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
