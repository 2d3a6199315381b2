"""An agent's calls on the wire, made one by one by a test."""

import asyncio
from collections.abc import Sequence
from typing import Any

import grpc
import pytest
from tests.support.waiting import PATIENCE

from windlass.api.clusters.v1 import clusters_pb2 as pb
from windlass.api.clusters.v1 import clusters_pb2_grpc as rpc
from windlass.core.errors import from_rpc


class AgentClient:
    """One session of an agent."""

    def __init__(
        self,
        channel: grpc.aio.Channel,
        credential: str,
        session: str = "session-1",
        *,
        executor: str = "",
    ):
        self._stub = rpc.ClustersAgentServiceStub(channel)
        self.metadata = (("authorization", f"Bearer {credential}"),)
        self.session = session
        self.executor = executor
        self.call: Any = None
        self.sequence = 0

    async def watch(self) -> pb.WorkloadsDelta:
        request = pb.WatchRequest(
            session_id=self.session, agent_version="1", executor=self.executor
        )
        self.call = self._stub.Watch(request, metadata=self.metadata)
        return await self.next()

    async def next(self) -> pb.WorkloadsDelta:
        async with asyncio.timeout(PATIENCE):
            delta: pb.WorkloadsDelta = await self.call.read()
            return delta

    async def heartbeat(self, slots: int = 2) -> bool:
        request = pb.HeartbeatRequest(session_id=self.session, capacity=pb.Capacity(slots=slots))
        return (await self._stub.Heartbeat(request, metadata=self.metadata)).current

    async def report(self, *statuses: pb.WorkloadStatus) -> None:
        request = pb.ReportStatusRequest(session_id=self.session, statuses=statuses)
        await self._stub.ReportStatus(request, metadata=self.metadata)

    async def observe(
        self,
        *items: pb.InventoryItem,
        gone: Sequence[str] = (),
        snapshot: bool = False,
        sequence: int | None = None,
        status: pb.SpecStatus | None = None,
    ) -> None:
        """Sends reports of the inventory, numbered in sequence unless a number is given."""
        self.sequence = self.sequence + 1 if sequence is None else sequence
        request = pb.ReportInventoryRequest(
            session_id=self.session,
            sequence=self.sequence,
            snapshot=snapshot,
            items=items,
            gone=gone,
            spec_status=status,
        )
        await self._stub.ReportInventory(request, metadata=self.metadata)

    async def rotate(self) -> pb.EnrollResponse:
        return await self._stub.RotateCredential(
            pb.RotateCredentialRequest(), metadata=self.metadata
        )


async def refused(awaitable: Any) -> tuple[grpc.StatusCode, str]:
    """Returns status and reason of a call that must fail."""
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        async with asyncio.timeout(PATIENCE):
            await awaitable
    return caught.value.code(), from_rpc(caught.value).reason
