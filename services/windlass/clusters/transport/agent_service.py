"""RPCs for agents: credentials, the watch of their cluster, and reports of its state."""

import asyncio
import math
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import unquote

import grpc

from windlass.api.clusters.v1 import clusters_pb2 as pb
from windlass.api.clusters.v1 import clusters_pb2_grpc as rpc
from windlass.clusters.domain import policy, records
from windlass.clusters.domain.records import ChangeBatch
from windlass.clusters.storage.credentials import expired
from windlass.clusters.storage.stores import Stores
from windlass.clusters.transport import messages
from windlass.clusters.transport.stack_keys import open_keys
from windlass.clusters.transport.watch_loop import follow
from windlass.core import clock
from windlass.core.addresses import group
from windlass.core.config import AgentsSection
from windlass.core.db.wake import Wake
from windlass.core.errors import InvalidArgument, ResourceExhausted, Unauthenticated
from windlass.core.keyring import Envelope
from windlass.core.rpc.auth import current_agent, digest, new_secret
from windlass.core.rpc.following import LOOK_SECONDS
from windlass.core.throttle import Throttle
from windlass.tunnel.authority import Authority

# By so much a loop's clock may wake too soon.
TIMER_SECONDS = 0.01
MAX_STATUSES = 1000
MAX_CAPACITY_BYTES = 64 * 1024

Context = grpc.aio.ServicerContext[Any, Any]


class ClustersAgentServicer(rpc.ClustersAgentServiceServicer):
    """The service for agents; each call is limited to the cluster of its credential."""

    def __init__(
        self,
        stores: Stores,
        wake: Wake,
        told: AgentsSection,
        stack_keys: Envelope,
        *,
        gateways_authority: Callable[[], Awaitable[Authority]],
        wrong_keys: int = 20,
    ):
        self._stores = stores
        self._gateways_authority = gateways_authority
        self._stack_keys = stack_keys
        self._wake = wake
        self._told = told
        self._attempts = Throttle(allowance=wrong_keys)

    async def Enroll(self, request: pb.EnrollRequest, context: Context) -> pb.EnrollResponse:
        """Exchanges a registration key, once, for a credential."""
        address = _address(context.peer())
        if seconds := math.ceil(self._attempts.wait(address)):
            raise ResourceExhausted(
                f"Too many wrong registration keys; try again in {seconds} s.",
                reason="too_many_attempts",
            )
        credential = new_secret(records.CREDENTIAL_PREFIX)
        try:
            issued = await self._stores.credentials.enroll(
                digest(request.registration_key), digest(credential)
            )
        except Unauthenticated:
            self._attempts.fail(address)
            raise
        return messages.enrolled(issued, credential)

    async def RotateCredential(
        self, request: pb.RotateCredentialRequest, context: Context
    ) -> pb.EnrollResponse:
        """The successor of the credential that the call came with."""
        agent, credential = current_agent(), new_secret(records.CREDENTIAL_PREFIX)
        issued = await self._stores.credentials.rotate(
            agent.cluster_id, agent.credential, digest(credential)
        )
        return messages.enrolled(issued, credential)

    async def Watch(
        self, request: pb.WatchRequest, context: Context
    ) -> AsyncIterator[pb.WorkloadsDelta]:
        """Takes over the cluster, then streams its desired state while its credential is valid."""
        agent = current_agent()
        cluster_id = agent.cluster_id
        session_id = records.check_identifier(request.session_id, "session_id")
        topic = records.cluster_topic(cluster_id)
        decided = await self._stores.clusters.take_over(
            cluster_id,
            session_id,
            agent_version=request.agent_version[:64],
            executor=request.executor[:64],
        )
        # The stream of the session before, if any, looks and ends.
        self._wake.touch(topic)

        async def read(after: int) -> ChangeBatch:
            if 0 < agent.expires_at <= clock.now():
                raise expired()
            return await self._stores.workloads.changes(cluster_id, session_id, after)

        suspend_seconds = (
            self._told.suspend_seconds
            if decided.executor == policy.KUBERNETES
            else self._told.process_suspend_seconds
        )
        told = 0
        with self._touched_at(agent.expires_at, topic):
            async for change, snapshot in follow(
                self._wake, topic, read, poll_seconds=LOOK_SECONDS
            ):
                deltas = messages.workloads_deltas(change, snapshot=snapshot, paged=request.paged)
                for delta in deltas:
                    open_keys(delta, self._stack_keys, cluster_id)
                    delta.heartbeat_seconds = records.HEARTBEAT_SECONDS
                    delta.suspend_seconds = suspend_seconds
                    if not delta.more and (snapshot or change.spec_revision != told):
                        delta.spec.CopyFrom(await self._stores.specs.spec(cluster_id))
                        if decided.executor == policy.PROCESS:
                            authority = await self._gateways_authority()
                            delta.spec.gateways_authority = authority.certificate
                        told = change.spec_revision
                    yield delta

    @contextmanager
    def _touched_at(self, moment: float, topic: str) -> Iterator[None]:
        """Touches a topic after a Unix second that comes during the block; 0 never comes."""
        left = max(0.0, moment - clock.now()) + TIMER_SECONDS
        timer = asyncio.get_running_loop().call_later(left, self._wake.touch, topic)
        if not moment:
            timer.cancel()
        try:
            yield
        finally:
            timer.cancel()

    async def Heartbeat(
        self, request: pb.HeartbeatRequest, context: Context
    ) -> pb.HeartbeatResponse:
        """Records that the agent is alive, and its capacity."""
        capacity = request.capacity.SerializeToString()
        if len(capacity) > MAX_CAPACITY_BYTES:
            raise InvalidArgument("The capacity is too large.", param="capacity")
        current = await self._stores.clusters.heartbeat(
            current_agent().cluster_id, request.session_id, capacity
        )
        return pb.HeartbeatResponse(current=current)

    async def ReportStatus(
        self, request: pb.ReportStatusRequest, context: Context
    ) -> pb.ReportStatusResponse:
        """Stores statuses of workloads."""
        if len(request.statuses) > MAX_STATUSES:
            raise InvalidArgument(
                f"At most {MAX_STATUSES} statuses are allowed in one call.", param="statuses"
            )
        owners = await self._stores.workloads.report(
            current_agent().cluster_id, request.session_id, request.statuses
        )
        for owner in owners:
            self._wake.touch(records.status_topic(owner))
        return pb.ReportStatusResponse()

    async def ReportInventory(
        self, request: pb.ReportInventoryRequest, context: Context
    ) -> pb.ReportInventoryResponse:
        """Stores the cluster's inventory and the status of its spec."""
        await self._stores.inventory.report(current_agent().cluster_id, request)
        return pb.ReportInventoryResponse()

    async def ReportIssuer(
        self, request: pb.ReportIssuerRequest, context: Context
    ) -> pb.ReportIssuerResponse:
        """Stores who signs the tokens of the cluster's service accounts."""
        issuer, jwks = records.check_issuer(request.issuer, request.jwks)
        await self._stores.issuers.put(current_agent().cluster_id, issuer, jwks)
        return pb.ReportIssuerResponse()


def _address(peer: str) -> str:
    """The client of a gRPC peer such as `ipv4:10.0.0.1:5555` or `ipv6:%5B::1%5D:5555`."""
    kind, _, rest = unquote(peer).partition(":")
    return group(rest.rpartition(":")[0]) if kind in ("ipv4", "ipv6") else kind
