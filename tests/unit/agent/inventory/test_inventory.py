"""Inventory reports: in order, again after a gap, with backoff while nobody listens."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
import pytest
from grpc.aio import AioRpcError, Metadata
from tests.support.waiting import PATIENCE, until

from windlass.api.clusters.v1 import clusters_pb2 as pb
from windlass.core.errors import AppError, FailedPrecondition, Unavailable, to_metadata
from windlass_agent.inventory import inventory as module
from windlass_agent.inventory.informers import ClusterInformers
from windlass_agent.inventory.inventory import Inventory
from windlass_agent.inventory.nodes import Node


class Cluster(ClusterInformers):
    """Informers that nobody runs: the test says what they hold."""

    def __init__(self) -> None:
        super().__init__(None)  # type: ignore[arg-type]  # nothing is read
        for informer in self._informers.values():
            informer.synced.set()

    def node(self, name: str, cpus: int) -> None:
        self.nodes._items[name] = Node(True, True, {}, cpus * 1000, 0, ())

    def lose(self, name: str) -> None:
        del self.nodes._items[name]


class Ear:
    """The clusters service's rule on sequences, and failures that a test asks for."""

    def __init__(self) -> None:
        self.nodes: dict[str, int] = {}
        self.statuses: list[int] = []
        self.snapshots = 0
        self.expected = -1
        self.failures: list[AppError] = []
        self._heard = asyncio.Condition()

    async def report(self, request: pb.ReportInventoryRequest) -> None:
        # An answer may be lost on its way back; then the report was taken.
        failure = self.failures.pop(0) if self.failures else None
        if failure is not None and failure.reason != "lost":
            raise rpc_error(failure)
        if request.snapshot:
            self.nodes.clear()
            self.snapshots += 1
        elif request.sequence != self.expected:
            raise rpc_error(FailedPrecondition("gap", reason="inventory_gap"))
        self.expected = request.sequence + 1
        for key in request.gone:
            del self.nodes[key]
        self.nodes |= {item.key: item.node.cpu_millis // 1000 for item in request.items}
        if request.HasField("spec_status"):
            self.statuses.append(request.spec_status.revision)
        async with self._heard:
            self._heard.notify_all()
        if failure is not None:
            raise rpc_error(failure)

    async def until(self, **nodes: int) -> None:
        wanted = {f"node/{name}": cpus for name, cpus in nodes.items()}
        async with asyncio.timeout(PATIENCE), self._heard:
            await self._heard.wait_for(lambda: self.nodes == wanted)


def rpc_error(error: AppError) -> AioRpcError:
    code = grpc.StatusCode.UNAVAILABLE
    if isinstance(error, FailedPrecondition):
        code = grpc.StatusCode.FAILED_PRECONDITION
    return AioRpcError(code, Metadata(), Metadata(*to_metadata(error)), error.message)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "COALESCE_SECONDS", 0.01)


@asynccontextmanager
async def told(cluster: Cluster, **status: Any) -> AsyncIterator[tuple[Inventory, Ear]]:
    ear = Ear()
    inventory = Inventory(cluster, ear.report, lambda: pb.SpecStatus(**status))
    running = asyncio.create_task(inventory.run("s"))
    try:
        yield inventory, ear
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def test_everything_is_told_once_and_then_changes() -> None:
    cluster = Cluster()
    cluster.node("a", 1)
    async with told(cluster) as (inventory, ear):
        await ear.until(a=1)
        cluster.node("b", 2)
        inventory.changed()
        await ear.until(a=1, b=2)
        cluster.lose("a")
        inventory.changed()
        await ear.until(b=2)
        assert ear.snapshots == 1


@pytest.mark.parametrize(
    ("failure", "snapshots"),
    [
        (Unavailable("away"), 1),
        # It arrived, and nobody said so: the next one is a gap.
        (Unavailable("cut", reason="lost"), 2),
        (FailedPrecondition("another server's memory", reason="inventory_gap"), 2),
    ],
)
async def test_what_fails_is_told_again(failure: AppError, snapshots: int) -> None:
    cluster = Cluster()
    cluster.node("a", 1)
    async with told(cluster) as (inventory, ear):
        await ear.until(a=1)
        ear.failures = [failure]
        cluster.node("a", 2)
        cluster.node("b", 1)
        inventory.changed()
        await ear.until(a=2, b=1)
        cluster.node("a", 3)
        inventory.changed()
        await ear.until(a=3, b=1)
        assert ear.snapshots == snapshots


async def test_an_empty_cluster_is_told_too_with_how_its_spec_fares() -> None:
    async with told(Cluster(), revision=7) as (inventory, ear):
        await ear.until()
        async with asyncio.timeout(PATIENCE):
            await until(lambda: ear.statuses == [7])
        assert ear.snapshots == 1
        inventory.changed()
        inventory.changed()
    assert ear.statuses == [7]


async def test_nothing_is_told_before_everything_was_seen() -> None:
    cluster = Cluster()
    cluster.nodes.synced.clear()
    cluster.node("a", 1)
    async with told(cluster) as (inventory, ear):
        inventory.changed()
        for _ in range(20):
            await asyncio.sleep(0)
        assert ear.snapshots == 0
        cluster.nodes.synced.set()
        inventory.changed()
        await ear.until(a=1)
