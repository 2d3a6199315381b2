"""RPCs for other replicas and other services."""

from collections.abc import AsyncIterator
from typing import Any

import grpc

from windlass.api.sessions.v1 import sessions_pb2 as pb
from windlass.api.sessions.v1 import sessions_pb2_grpc as rpc
from windlass.core.errors import InvalidArgument
from windlass.sessions.tunnel.agent_service import bring, nobody_waits
from windlass.sessions.tunnel.pending_dials import PendingDials
from windlass.sessions.tunnel.replicas import Replica
from windlass.sessions.tunnel.tunnels import Tunnels
from windlass.tunnel.byte_stream import ByteStream, StreamCall
from windlass.tunnel.multiplexer import Multiplexer
from windlass.tunnel.splicing import splice

# Ids of clusters in one message: well below 1 MiB.
PART = 10_000

Context = grpc.aio.ServicerContext[Any, Any]


class SessionsInternalServicer(rpc.SessionsInternalServiceServicer):
    """The service for other replicas, and for services that connect to workloads."""

    def __init__(self, replica: Replica, tunnels: Tunnels, dials: PendingDials):
        self._replica = replica
        self._tunnels = tunnels
        self._dials = dials

    async def Forward(  # type: ignore[override]  # reads and writes its context
        self, requests: object, context: Context
    ) -> None:
        """Dials for another replica, or accepts a connection an agent opened there for this one."""
        first = await context.read()
        if not isinstance(first, pb.Chunk) or not first.connection_id or not first.cluster_id:
            raise InvalidArgument(
                "The first chunk does not name a connection.", param="connection_id"
            )
        theirs = ByteStream(context)
        theirs.relayed = True
        try:
            if first.HasField("target"):
                ours = await self._tunnels.carry(first)
                await context.write(pb.Chunk(connection_id=first.connection_id))
                await splice(theirs, ours)
            elif not bring(self._dials, first.cluster_id, first, theirs):
                if first.error and self._tunnels.hang_up(first.cluster_id, first.connection_id):
                    return
                raise nobody_waits()
            await theirs.finished()
        finally:
            theirs.abort()

    async def Carry(  # type: ignore[override]  # reads and writes its context
        self, requests: object, context: Context
    ) -> None:
        """Opens any number of connections to workloads."""
        multiplexer = Multiplexer(context, self._connect, paces=True)
        with self._replica.when_draining(multiplexer.drain):
            await multiplexer.run()

    async def Connect(  # type: ignore[override]  # reads and writes its context
        self, requests: object, context: Context
    ) -> None:
        """Opens a connection to a workload, which its cluster's agent must run."""
        await self._connect(context)

    async def _connect(self, call: StreamCall) -> None:
        first = await call.read()
        if not isinstance(first, pb.Chunk) or not first.cluster_id:
            raise InvalidArgument("The first chunk does not name a cluster.", param="cluster_id")
        if not first.target.workload_id:
            raise InvalidArgument("The target must be a workload.", param="target")
        theirs = ByteStream(call)
        try:
            ours = await self._tunnels.connect(first.cluster_id, first.target)
            workload_id = first.target.workload_id
            await call.write(pb.Chunk(connection_id=workload_id, relayed=ours.relayed))
            await splice(theirs, ours)
            await theirs.finished()
        finally:
            theirs.abort()

    async def ListTunnels(
        self, request: pb.ListTunnelsRequest, context: Context
    ) -> AsyncIterator[pb.ListTunnelsResponse]:
        """Streams the clusters that can be reached."""
        ids = await self._tunnels.open_clusters()
        for start in range(0, len(ids), PART):
            yield pb.ListTunnelsResponse(cluster_ids=ids[start : start + PART])
