"""The control stream: held for as long as the agent lives, found again wherever it breaks."""

import asyncio
from collections.abc import Awaitable, Callable
from enum import Enum, auto

import grpc

from windlass.api.sessions.v1.sessions_pb2 import Dial, ListenRequest
from windlass.api.sessions.v1.sessions_pb2_grpc import (
    SessionsAgentServiceAsyncStub,
    SessionsAgentServiceStub,
)
from windlass.core import telemetry
from windlass.core.backoff import Backoff
from windlass.metrics.agent import CALL_FAILURES
from windlass.tunnel.byte_stream import StreamCall
from windlass.tunnel.lanes import Lanes, carry
from windlass_agent.control_plane.connection import ControlPlane
from windlass_agent.retrying import reason_of
from windlass_agent.tunnel.attaching import Attaching
from windlass_agent.tunnel.open_connections import OpenConnections
from windlass_agent.tunnel.targets import Targets

# Three of the server's heartbeats missed.
SILENT_SECONDS = 15.0
# In the metadata of every call: which life of the agent makes it.
SESSION_KEY = "windlass-session"
# A server that has no tunnels may be a newer one tomorrow.
ABSENT_SECONDS = 60.0

log = telemetry.logger("tunnel")


class End(Enum):
    """Reason for which a control stream ended."""

    # It goes on for as long as the server likes, but another should open now.
    DRAINS = auto()
    BROKE = auto()
    # The server offers none.
    ABSENT = auto()
    # Another agent took over.
    FENCED = auto()


class Tunnel:
    """Keeps a way open by which the server reaches targets in the cluster."""

    def __init__(
        self,
        control: ControlPlane,
        targets: Targets,
        to_workloads: OpenConnections | None = None,
    ):
        """`to_workloads` counts the connections that requests of gateways take."""
        self._control = control
        self._lanes = Lanes(self._start_lane, paces=True)
        self._attaching = Attaching(self._lanes, targets, to_workloads or OpenConnections())
        self._session_id = ""
        self._connections = asyncio.TaskGroup()
        self._backoff = Backoff()

    async def run(self, session_id: str) -> None:
        """Runs until cancelled; returns when another life of the agent took over."""
        self._session_id = session_id
        try:
            async with self._connections:
                await self._hold()
                await self._lanes.close()
        finally:
            await self._lanes.close()

    def _metadata(self) -> tuple[tuple[str, str], ...]:
        return (*self._control.metadata, (SESSION_KEY, self._session_id))

    def _start_lane(self) -> tuple[StreamCall, Callable[[], Awaitable[object]]]:
        """A call for connections, on a channel of its own."""
        channel = self._control.open_channel()
        start = carry(channel, "SessionsAgentService")
        return start(metadata=self._metadata(), wait_for_ready=True), channel.close

    async def _hold(self) -> None:
        while True:
            end: asyncio.Future[End] = asyncio.get_running_loop().create_future()
            # A stream that drains goes on beside its successor, until the server lets it go.
            self._connections.create_task(self._listen(end))
            match await end:
                case End.FENCED:
                    log.warning("tunnel_fenced")
                    return
                case End.ABSENT:
                    log.info("tunnel_unavailable")
                    await asyncio.sleep(ABSENT_SECONDS)
                case End.BROKE:
                    CALL_FAILURES.labels("tunnel").inc()
                    await self._backoff.pause()
                case End.DRAINS:
                    log.info("tunnel_reopening")

    async def _listen(self, end: asyncio.Future[End]) -> None:
        outcome = End.BROKE

        def drain() -> None:
            if not end.done():
                end.set_result(End.DRAINS)

        try:
            async with self._control.open_channel() as channel:
                await self._follow(channel, drain)
        except grpc.aio.AioRpcError as error:
            outcome = _outcome(error)
            if not end.done():
                log.info("tunnel_lost", code=error.code().name, details=error.details())
        except TimeoutError:
            log.info("tunnel_lost", details="the server does not respond")
        finally:
            if not end.done():
                end.set_result(outcome)

    async def _follow(self, channel: grpc.aio.Channel, drain: Callable[[], object]) -> None:
        stub: SessionsAgentServiceAsyncStub = SessionsAgentServiceStub(channel)
        request, metadata = ListenRequest(session_id=self._session_id), self._metadata()
        call = stub.Listen(request, metadata=metadata)
        opened = False
        while True:
            async with asyncio.timeout(SILENT_SECONDS):
                dial = await call.read()
            if not isinstance(dial, Dial):
                return
            if not opened:
                opened = True
                self._backoff.reset()
                self._lanes.renew()
                log.info("tunnel_opened")
            if dial.drain or metadata != self._metadata():
                # With a new credential too: a stream that shows it vouches for what is open.
                drain()
            elif dial.connection_id:
                self._take(dial)

    def _take(self, dial: Dial) -> None:
        if dial.HasField("target"):
            self._connections.create_task(self._attaching.dial(dial))
        else:
            self._attaching.hang_up(dial.connection_id)


def _outcome(error: grpc.aio.AioRpcError) -> End:
    if error.code() is grpc.StatusCode.UNIMPLEMENTED:
        return End.ABSENT
    if reason_of(error) == "session_superseded":
        return End.FENCED
    return End.BROKE
