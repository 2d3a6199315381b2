"""Opens connections into clusters, wherever the agent's control stream ends."""

import asyncio
import contextlib
from collections.abc import Coroutine
from typing import Any

import grpc

from windlass.api.sessions.v1.sessions_pb2 import Chunk, Dial, Target
from windlass.core.db.wake import Wake
from windlass.core.errors import AppError, from_rpc
from windlass.core.killpoints import reach
from windlass.metrics import tunnel as metrics
from windlass.sessions.tunnel.domain import (
    ConnectionLimits,
    TunnelConnection,
    new_connection_id,
    tunnel_topic,
    unreachable,
)
from windlass.sessions.tunnel.pending_dials import ControlStream, PendingDials, Slots
from windlass.sessions.tunnel.replicas import Replica
from windlass.sessions.tunnel.store import RouteStore, StreamRoute
from windlass.tunnel.byte_stream import ByteStream, over_call, refused

# For a control stream that broke to come again, at this replica or another.
RETURN_SECONDS = 3.0
RETRY_SECONDS = 0.25
# For the agent to dial back.
DIAL_SECONDS = 10.0


class Lost(Exception):
    """The control stream ended before the agent dialled back; a retry may succeed."""


class Tunnels:
    """The tunnels of this replica and, through other replicas, of all."""

    def __init__(
        self,
        replica: Replica,
        dials: PendingDials,
        store: RouteStore,
        wake: Wake,
        limits: ConnectionLimits,
    ):
        self._replica = replica
        self._dials = dials
        self._store = store
        self._wake = wake
        self._slots = Slots(limits)
        self._hanging_up: set[asyncio.Task[None]] = set()

    async def connect(self, cluster_id: str, target: Target) -> TunnelConnection:
        """A connection to a target, open when this returns.

        One connection carries one HTTP exchange where the target is Kubernetes: a request
        head without credentials, its body, the answer and, after a 101, raw bytes.
        Raises Unavailable `cluster_unreachable`, FailedPrecondition `target_refused`,
        ResourceExhausted `too_many_connections`.
        """
        try:
            release = self._slots.take(cluster_id)
            try:
                with metrics.DIAL_SECONDS.time():
                    stream = await self._open(cluster_id, target)
            except BaseException:
                release()
                raise
        except AppError as error:
            metrics.DIAL_FAILURES.labels(error.reason).inc()
            raise
        stream.when_over(release)
        return stream

    async def open_clusters(self) -> list[str]:
        """Clusters that `connect` finds a control stream of, here or at another replica."""
        return await self._store.open_tunnels(within_seconds=RETURN_SECONDS)

    def holds(self, cluster_id: str) -> bool:
        """Returns True if the cluster's control stream ends at this replica."""
        return self.generation(cluster_id) > 0

    def generation(self, cluster_id: str) -> int:
        """Generation of the control stream that ends here; 0 without one."""
        control = self._replica.controls.get(cluster_id)
        return control.generation if control is not None else 0

    async def route(self, cluster_id: str) -> StreamRoute | None:
        """The last known replica of the cluster's control stream; None without one."""
        return await self._store.route(cluster_id)

    @property
    def has_others(self) -> bool:
        """True if there are other replicas that agents can reconnect to."""
        return self._replica.has_others

    async def carry(self, first: Chunk) -> ByteStream:
        """Connects through this replica's control stream on behalf of another replica."""
        control = self._replica.controls.get(first.cluster_id)
        if control is None:
            raise unreachable()
        release = self._slots.take(first.cluster_id)
        try:
            stream = await self._dial(control, first.connection_id, first.target)
        except Lost:
            release()
            raise unreachable() from None
        except BaseException:
            release()
            raise
        stream.when_over(release)
        return stream

    async def _open(self, cluster_id: str, target: Target) -> ByteStream:
        listener = self._wake.listen(tunnel_topic(cluster_id))
        loop = asyncio.get_running_loop()
        deadline = loop.time() + RETURN_SECONDS
        try:
            while True:
                try:
                    return await self._attempt(cluster_id, target)
                except Lost:
                    if loop.time() > deadline:
                        raise unreachable() from None
                await listener.wait(RETRY_SECONDS)
        finally:
            listener.close()

    async def _attempt(self, cluster_id: str, target: Target) -> ByteStream:
        connection_id = new_connection_id(self._replica.id)
        if control := self._replica.controls.get(cluster_id):
            return await self._dial(control, connection_id, target)
        route = await self._store.route(cluster_id)
        if route is None or route.gone_seconds > RETURN_SECONDS:
            raise unreachable()
        if not route.live or route.replica_id == self._replica.id:
            raise Lost
        first = Chunk(connection_id=connection_id, cluster_id=cluster_id, target=target)
        return await self._forward(route, first)

    async def _dial(self, control: ControlStream, connection_id: str, target: Target) -> ByteStream:
        with self._dials.expecting(connection_id, control.cluster_id) as brought:
            control.send(Dial(connection_id=connection_id, target=target))
            reach("tunnel.dialled")
            await asyncio.wait(
                (brought, control.ended), timeout=DIAL_SECONDS, return_when=asyncio.FIRST_COMPLETED
            )
            if brought.done():
                stream = brought.result()
                stream.when_cut(lambda _: self.hang_up(control.cluster_id, connection_id))
                return stream
            if control.ended.done():
                raise Lost
            raise unreachable("The agent of this cluster does not answer.")

    def hang_up(self, cluster_id: str, connection_id: str) -> bool:
        """Has the agent end a connection, whose call can tell it only behind what it has not
        read; False when its control stream does not end here."""
        control = self._replica.controls.get(cluster_id)
        if control is not None:
            control.send(Dial(connection_id=connection_id))
        return control is not None

    def _keep(self, work: Coroutine[Any, Any, None]) -> None:
        self._hanging_up.add(task := asyncio.create_task(work))
        task.add_done_callback(self._hanging_up.discard)

    async def _hang_up_at(self, route: StreamRoute, first: Chunk) -> None:
        call = self._replica.peer(route.address).Forward()
        with contextlib.suppress(grpc.aio.AioRpcError):
            await call.write(first)
            await call.done_writing()
            await call.code()

    async def _forward(self, route: StreamRoute, first: Chunk) -> ByteStream:
        """Connects through another replica, unless the agent dials back here directly."""
        call = self._replica.peer(route.address).Forward()
        over = Chunk(
            connection_id=first.connection_id, cluster_id=first.cluster_id, error="hung up"
        )
        with self._dials.expecting(first.connection_id, first.cluster_id) as brought:
            answer = asyncio.create_task(_answered(call, first))
            try:
                await asyncio.wait(
                    (brought, answer), timeout=DIAL_SECONDS, return_when=asyncio.FIRST_COMPLETED
                )
                if brought.done():
                    call.cancel()
                    stream = brought.result()
                    stream.when_cut(lambda _: self._keep(self._hang_up_at(route, over)))
                    return stream
                if not answer.done():
                    raise unreachable("The agent of this cluster does not answer.")
                answer.result()
                stream = over_call(call)
                stream.relayed = True
                return stream
            except BaseException:
                call.cancel()
                raise
            finally:
                answer.cancel()


async def _answered(call: Any, first: Chunk) -> None:
    """Returns once the other replica says that the connection is open."""
    try:
        await call.write(first)
        answer = await call.read()
    except grpc.aio.AioRpcError as error:
        failure = from_rpc(error)
        if error.code() is grpc.StatusCode.UNAVAILABLE:
            raise Lost from error
        raise failure from error
    if answer is grpc.aio.EOF or not isinstance(answer, Chunk):
        raise Lost
    if answer.error:
        raise refused(answer.error)
