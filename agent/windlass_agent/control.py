"""The agent's line to the control plane: every call carries its credential."""

from collections.abc import AsyncIterator, Iterable
from pathlib import Path
from urllib.parse import urlsplit

import grpc

from windlass.api.clusters.v1 import clusters_pb2 as pb
from windlass.api.clusters.v1 import clusters_pb2_grpc
from windlass.api.jobs.v1 import jobs_pb2, jobs_pb2_grpc
from windlass.core.clients import CHANNEL_OPTIONS
from windlass.core.config import is_loopback

CALL_SECONDS = 30.0


def open_channel(address: str, *, ca: Path | None = None) -> grpc.aio.Channel:
    """A channel to `grpcs://host:port`, `unix:/path`, or `grpc://` on this machine.

    Raises ValueError for any other address, so that no credential travels in clear.
    """
    if address.startswith("unix:"):
        return grpc.aio.insecure_channel(address, options=CHANNEL_OPTIONS)
    parts = urlsplit(address)
    if not parts.hostname or not parts.port:
        raise ValueError(f"{address!r} is not grpcs://host:port or unix:///path")
    if parts.scheme == "grpcs":
        roots = ca.read_bytes() if ca else None
        credentials = grpc.ssl_channel_credentials(roots)
        return grpc.aio.secure_channel(parts.netloc, credentials, options=CHANNEL_OPTIONS)
    if parts.scheme == "grpc" and is_loopback(parts.hostname):
        return grpc.aio.insecure_channel(parts.netloc, options=CHANNEL_OPTIONS)
    raise ValueError(f"{address!r}: an agent on another machine needs grpcs://")


async def enroll(address: str, registration_key: str, *, ca: Path | None = None) -> str:
    """Exchanges a registration key for a credential; raises grpc.aio.AioRpcError."""
    async with open_channel(address, ca=ca) as channel:
        stub: clusters_pb2_grpc.ClustersAgentServiceAsyncStub
        stub = clusters_pb2_grpc.ClustersAgentServiceStub(channel)
        request = pb.EnrollRequest(registration_key=registration_key)
        return (await stub.Enroll(request, timeout=CALL_SECONDS)).credential


class ControlPlane:
    """The calls of one enrolled agent; each raises grpc.aio.AioRpcError."""

    def __init__(self, *, clusters: str, jobs: str, credential: str, ca: Path | None = None):
        self._channels = {address: open_channel(address, ca=ca) for address in {clusters, jobs}}
        self._clusters: clusters_pb2_grpc.ClustersAgentServiceAsyncStub = (
            clusters_pb2_grpc.ClustersAgentServiceStub(self._channels[clusters])
        )
        self.jobs: jobs_pb2_grpc.JobsAgentServiceAsyncStub = jobs_pb2_grpc.JobsAgentServiceStub(
            self._channels[jobs]
        )
        self.metadata = (("authorization", f"Bearer {credential}"),)

    def watch(self, request: pb.WatchRequest) -> AsyncIterator[pb.WorkloadsDelta]:
        """What the cluster should run: a snapshot, then changes."""
        return aiter(self._clusters.Watch(request, metadata=self.metadata))

    async def heartbeat(self, session_id: str, capacity: pb.Capacity) -> bool:
        """Says that the agent lives; False when another session took over."""
        request = pb.HeartbeatRequest(session_id=session_id, capacity=capacity)
        answer = await self._clusters.Heartbeat(
            request, metadata=self.metadata, timeout=CALL_SECONDS
        )
        return answer.current

    async def report(self, session_id: str, statuses: Iterable[pb.WorkloadStatus]) -> None:
        """Says what runs."""
        request = pb.ReportStatusRequest(session_id=session_id, statuses=statuses)
        await self._clusters.ReportStatus(request, metadata=self.metadata, timeout=CALL_SECONDS)

    async def append_log(self, run: jobs_pb2.Run, offset: int, data: bytes) -> int:
        """Adds to an attempt's log; answers how much of it is stored."""
        request = jobs_pb2.AppendLogRequest(run=run, offset=offset, data=data)
        answer = await self.jobs.AppendLog(request, metadata=self.metadata, timeout=CALL_SECONDS)
        return answer.stored

    async def finish(self, request: jobs_pb2.RunFinishRequest) -> None:
        """Says how an attempt ended, for a runner that could not."""
        await self.jobs.Finish(request, metadata=self.metadata, timeout=CALL_SECONDS)

    async def close(self) -> None:
        """Closes the line."""
        for channel in self._channels.values():
            await channel.close()
