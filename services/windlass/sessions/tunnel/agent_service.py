"""RPCs for agents: the control stream, and the connections that they dial back."""

from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import Any

import grpc

from windlass.api.sessions.v1 import sessions_pb2 as pb
from windlass.api.sessions.v1 import sessions_pb2_grpc as rpc
from windlass.core.errors import AppError, InvalidArgument, NotFound, Unavailable
from windlass.core.killpoints import reach
from windlass.core.rpc.auth import current_agent
from windlass.sessions.tunnel.credential_watch import CredentialWatch
from windlass.sessions.tunnel.domain import check_session, replica_of, too_many, unreachable
from windlass.sessions.tunnel.pending_dials import PendingDials
from windlass.sessions.tunnel.replicas import Replica
from windlass.sessions.tunnel.store import RouteStore
from windlass.tunnel.byte_stream import ByteStream, StreamCall, over_call, refused
from windlass.tunnel.multiplexed_call import MultiplexedCall
from windlass.tunnel.multiplexer import Multiplexer
from windlass.tunnel.splicing import splice

Context = grpc.aio.ServicerContext[Any, Any]
# Of one cluster, each with a hundred connections or more: an agent needs a few.
MAX_LANES = 64
# On calls of `Attach`: which life of the agent makes it.
SESSION_KEY = "windlass-session"


def session_of(context: Context) -> str:
    """The life of the agent that makes a call; empty if it does not say."""
    return str(dict(context.invocation_metadata() or ()).get(SESSION_KEY, ""))


def revoked() -> Unavailable:
    """The error of streams that an agent opened by a credential that has ended."""
    return unreachable("The credential of this cluster's agent is no longer valid.")


def nobody_waits() -> NotFound:
    """The error for an agent that dials back too late, or for another cluster."""
    return NotFound("No client is waiting for this connection.", reason="connection_not_found")


class SessionsAgentServicer(rpc.SessionsAgentServiceServicer):
    """The service for agents; each call is limited to the cluster of its credential."""

    def __init__(
        self, replica: Replica, dials: PendingDials, store: RouteStore, credentials: CredentialWatch
    ):
        self._replica = replica
        self._dials = dials
        self._store = store
        self._credentials = credentials
        # Calls of `Carry` that are open, by cluster.
        self._lanes = Counter[str]()

    async def Listen(self, request: pb.ListenRequest, context: Context) -> AsyncIterator[pb.Dial]:
        """Streams the connections to dial back until a newer stream replaces this one."""
        agent = current_agent()
        session_id = check_session(request.session_id)
        await self._credentials.check(agent)
        control = await self._replica.open_control(agent.cluster_id, session_id)
        try:
            with self._credentials.over(agent, session_id, control.end):
                yield pb.Dial()
                while (dial := await control.next()) is not None:
                    yield dial
        finally:
            await self._replica.close_control(control)

    async def Carry(  # type: ignore[override]  # reads and writes its context
        self, requests: object, context: Context
    ) -> None:
        """Accepts any number of connections that are awaited here or at other replicas."""
        agent = current_agent()

        async def accept(call: MultiplexedCall) -> None:
            first = await self._first(call)
            await self._accept(agent.cluster_id, first, ByteStream(call))

        multiplexer = Multiplexer(context, accept)

        def end(_: AppError) -> None:
            multiplexer.abort(revoked())

        with (
            self._lane(agent.cluster_id),
            self._credentials.over(agent, session_of(context), end),
            self._replica.when_draining(multiplexer.drain),
        ):
            await multiplexer.run()

    @contextmanager
    def _lane(self, cluster_id: str) -> Iterator[None]:
        """Counts a lane for the length of the block; raises `too_many_connections`."""
        if self._lanes[cluster_id] >= MAX_LANES:
            raise too_many()
        self._lanes[cluster_id] += 1
        try:
            yield
        finally:
            self._lanes[cluster_id] -= 1
            if not self._lanes[cluster_id]:
                del self._lanes[cluster_id]

    async def Attach(  # type: ignore[override]  # reads and writes its context
        self, requests: object, context: Context
    ) -> None:
        """Accepts one connection that is awaited here or at another replica."""
        agent = current_agent()
        first = await self._first(context)
        stream = ByteStream(context)
        with self._credentials.over(agent, session_of(context), lambda _: stream.abort(revoked())):
            await self._accept(agent.cluster_id, first, stream)

    async def _first(self, call: StreamCall) -> pb.Chunk:
        first = await call.read()
        if not isinstance(first, pb.Chunk) or not first.connection_id:
            raise InvalidArgument(
                "The first chunk does not name a connection.", param="connection_id"
            )
        return first

    async def _accept(self, cluster_id: str, first: pb.Chunk, stream: ByteStream) -> None:
        try:
            if not bring(self._dials, cluster_id, first, stream):
                await self._relay(cluster_id, first, stream)
            reach("tunnel.attached")
            await stream.finished()
            reach("tunnel.finished")
        finally:
            stream.abort()

    async def _relay(self, cluster_id: str, first: pb.Chunk, stream: ByteStream) -> None:
        """Relays a connection that a load balancer sent here to its replica."""
        owner = replica_of(first.connection_id)
        route = await self._store.replica(owner) if owner != self._replica.id else None
        if route is None or not route.live:
            raise nobody_waits()
        call = self._replica.peer(route.address).Forward()
        named = pb.Chunk(
            connection_id=first.connection_id, cluster_id=cluster_id, error=first.error
        )
        await call.write(named)
        await splice(stream, over_call(call))


def bring(dials: PendingDials, cluster_id: str, first: pb.Chunk, stream: ByteStream) -> bool:
    """Hands a connection, or its failure, to the caller that waits for it here."""
    waiter = dials.claim(first.connection_id, cluster_id)
    if waiter is None:
        return False
    if first.error:
        waiter.set_exception(refused(first.error))
        stream.abort()
    else:
        waiter.set_result(stream)
    return True
