"""The agent's line to the control plane: every call carries its credential."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from pathlib import Path
from urllib.parse import urlsplit

import grpc

from windlass.api.clusters.v1 import clusters_pb2 as pb
from windlass.api.clusters.v1 import clusters_pb2_grpc
from windlass.api.federation.v1 import federation_pb2, federation_pb2_grpc
from windlass.api.jobs.v1 import jobs_pb2, jobs_pb2_grpc
from windlass.core.config import is_loopback
from windlass.core.rpc.clients import CHANNEL_OPTIONS
from windlass_agent.retrying import reason_of

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


async def enroll(
    address: str, registration_key: str, *, ca: Path | None = None
) -> pb.EnrollResponse:
    """Exchanges a registration key for a credential; raises grpc.aio.AioRpcError."""
    async with open_channel(address, ca=ca) as channel:
        stub: clusters_pb2_grpc.ClustersAgentServiceAsyncStub
        stub = clusters_pb2_grpc.ClustersAgentServiceStub(channel)
        request = pb.EnrollRequest(registration_key=registration_key)
        return await stub.Enroll(request, timeout=CALL_SECONDS)


class ControlPlane:
    """The calls of one enrolled agent; each raises grpc.aio.AioRpcError."""

    def __init__(self, *, clusters: str, jobs: str, credential: str, ca: Path | None = None):
        self._address, self._ca = clusters, ca
        self._channels = {address: open_channel(address, ca=ca) for address in {clusters, jobs}}
        self._clusters: clusters_pb2_grpc.ClustersAgentServiceAsyncStub = (
            clusters_pb2_grpc.ClustersAgentServiceStub(self._channels[clusters])
        )
        self._federation: federation_pb2_grpc.FederationAgentServiceAsyncStub = (
            federation_pb2_grpc.FederationAgentServiceStub(self._channels[clusters])
        )
        self.jobs: jobs_pb2_grpc.JobsAgentServiceAsyncStub = jobs_pb2_grpc.JobsAgentServiceStub(
            self._channels[jobs]
        )
        # Set when the credential in use is refused as too old.
        self.expired = asyncio.Event()
        self.use(credential)

    def use(self, credential: str) -> None:
        """Every call from now on carries this one."""
        self.credential = credential
        self.metadata = (("authorization", f"Bearer {credential}"),)

    async def rotate(self) -> pb.EnrollResponse:
        """The successor of the credential in use, for its holder to store and then to use."""
        return await self._clusters.RotateCredential(
            pb.RotateCredentialRequest(), metadata=self.metadata, timeout=CALL_SECONDS
        )

    async def watch(self, request: pb.WatchRequest) -> AsyncIterator[pb.WorkloadsDelta]:
        """Yields what the cluster should run: a snapshot, then changes, while the credential
        lives.
        """
        credential = self.credential
        try:
            whole = pb.WorkloadsDelta()
            async for delta in self._clusters.Watch(request, metadata=self.metadata):
                whole.MergeFrom(delta)
                if not delta.more:
                    yield whole
                    whole = pb.WorkloadsDelta()
        except grpc.aio.AioRpcError as error:
            if reason_of(error) == "credential_expired" and credential == self.credential:
                self.expired.set()
            raise

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

    async def report_inventory(self, request: pb.ReportInventoryRequest) -> None:
        """Says what the cluster has, and how its spec fares."""
        await self._clusters.ReportInventory(request, metadata=self.metadata, timeout=CALL_SECONDS)

    async def report_issuer(self, issuer: str, jwks: str) -> None:
        """Says who signs the tokens of the cluster's service accounts."""
        request = pb.ReportIssuerRequest(issuer=issuer, jwks=jwks)
        await self._clusters.ReportIssuer(request, metadata=self.metadata, timeout=CALL_SECONDS)

    async def report_objects(self, objects: Iterable[federation_pb2.FederatedObject]) -> None:
        """Says what was applied here for other clusters to run."""
        request = federation_pb2.ReportObjectsRequest(objects=objects)
        await self._federation.ReportObjects(request, metadata=self.metadata, timeout=CALL_SECONDS)

    async def append_log(self, run: jobs_pb2.Run, offset: int, data: bytes) -> int:
        """Appends to an attempt's log; returns how much of it is stored."""
        request = jobs_pb2.AppendLogRequest(run=run, offset=offset, data=data)
        answer = await self.jobs.AppendLog(request, metadata=self.metadata, timeout=CALL_SECONDS)
        return answer.stored

    async def finish(self, request: jobs_pb2.RunFinishRequest) -> None:
        """Says how an attempt ended, for a runner that could not."""
        await self.jobs.Finish(request, metadata=self.metadata, timeout=CALL_SECONDS)

    def open_channel(self) -> grpc.aio.Channel:
        """A connection of its caller's own, who closes it."""
        return open_channel(self._address, ca=self._ca)

    async def close(self) -> None:
        """Closes the line."""
        for channel in self._channels.values():
            await channel.close()
