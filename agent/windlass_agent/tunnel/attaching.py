"""Dialling back: each connection is a call of its own on one of the lanes."""

import asyncio
import contextlib

from windlass.api.sessions.v1.sessions_pb2 import Chunk, Dial
from windlass.core import telemetry
from windlass.core.errors import AppError
from windlass.core.killpoints import reach
from windlass.metrics.agent import TUNNEL_CONNECTIONS
from windlass.tunnel.byte_stream import ByteStream, over_call
from windlass.tunnel.http1_bodies import MalformedHttp
from windlass.tunnel.lanes import Lanes
from windlass_agent.tunnel.open_connections import OpenConnections
from windlass_agent.tunnel.refusal import TargetRefused
from windlass_agent.tunnel.targets import Targets, Upstream

MAX_CONNECTIONS = 2000
# For the server to take a refusal.
REFUSE_SECONDS = 10.0

log = telemetry.logger("tunnel")


class Attaching:
    """Every connection that is open."""

    def __init__(self, lanes: Lanes, targets: Targets, to_workloads: OpenConnections):
        self._lanes = lanes
        self._targets = targets
        self._to_workloads = to_workloads
        self._streams: dict[str, ByteStream] = {}
        self._dials = 0

    async def dial(self, dial: Dial) -> None:
        """Connects the target, dials back, and carries the bytes; never raises but to cancel."""
        is_request = dial.target.WhichOneof("target") == "workload_id"
        with self._to_workloads.counted() if is_request else contextlib.nullcontext():
            await self._dial(dial)

    async def _dial(self, dial: Dial) -> None:
        self._dials += 1
        reach("tunnel.dialled")
        upstream = None
        try:
            if self._dials > MAX_CONNECTIONS:
                raise TargetRefused("The agent has reached its limit of open connections.")
            upstream = await self._targets.open(dial.target)
            await self._carry(dial.connection_id, upstream)
        except TargetRefused as refusal:
            await self._refuse(dial.connection_id, str(refusal))
        except (AppError, MalformedHttp, TimeoutError) as error:
            log.info("connection_broken", connection=dial.connection_id, error=str(error))
        except Exception as error:
            log.error("connection_failed", connection=dial.connection_id, exc_info=error)
        finally:
            self._dials -= 1
            if upstream is not None:
                upstream.close()

    def hang_up(self, connection_id: str) -> None:
        """Ends a connection that its call cannot end, since its bytes are not taken."""
        if stream := self._streams.get(connection_id):
            stream.abort()

    async def _carry(self, connection_id: str, upstream: Upstream) -> None:
        call = await self._lanes.open(Chunk(connection_id=connection_id))
        stream = self._streams[connection_id] = over_call(call)
        TUNNEL_CONNECTIONS.inc()
        try:
            reach("tunnel.attached")
            await upstream.serve(stream)
            await stream.finished()
            reach("tunnel.finished")
        finally:
            del self._streams[connection_id]
            TUNNEL_CONNECTIONS.dec()
            stream.abort()

    async def _refuse(self, connection_id: str, why: str) -> None:
        log.info("connection_refused", connection=connection_id, reason=why)
        with contextlib.suppress(AppError, TimeoutError):
            call = await self._lanes.open(Chunk(connection_id=connection_id, error=why))
            try:
                async with asyncio.timeout(REFUSE_SECONDS):
                    await call.code()
            finally:
                call.cancel()
