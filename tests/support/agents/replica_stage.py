"""Replicas of a model behind the agent's end of the tunnel, and a gateway's client before it.

The client and the agent's side are real; the tunnel between them is a pair of queues, the
replicas answer with their names, and their doors are open to everyone.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, cast

from aiohttp import web
from tests.support.processes.windlass import free_port
from tests.unit.tunnel.test_byte_stream import End

from windlass.api.sessions.v1.sessions_pb2 import Target
from windlass.gateway.inference.engines.connection import EngineConnection
from windlass.gateway.inference.engines.tunnel import TunnelTransport
from windlass.metrics.agent import PICKS
from windlass.tunnel.byte_stream import ByteStream
from windlass_agent.executors.kubernetes.engine_settings import PickerSettings
from windlass_agent.executors.kubernetes.engines.replicas import ServingReplica
from windlass_agent.tunnel.picking.chooser import ReplicaChooser
from windlass_agent.tunnel.targets import Targets

HOSTS = {"eng-1": "127.0.0.2", "eng-2": "127.0.0.3", "eng-3": "127.0.0.4"}
# Of one that a test makes.
OTHERS = {"eng-5": "127.0.0.5"}
NAMESPACE, MODEL = "team-a", "toy"
OUTCOMES = (
    "moved", "kept", "refused", "unfit", "timeout", "failed", "unreachable", "busy", "resting",
    "unread",
)  # fmt: skip


class Wire(End):
    """An end whose bytes arrive as bytes, as over gRPC."""

    async def write(self, message: Any) -> None:
        whole: Any = bytes(message) if isinstance(message, memoryview) else message
        await super().write(whole)


def _streams() -> tuple[ByteStream, ByteStream]:
    one, other = Wire(), Wire()
    one.other, other.other = other, one
    ours, theirs = ByteStream(one), ByteStream(other)
    # As the calls between them would.
    ours.when_cut(lambda _: theirs.abort())
    return ours, theirs


@dataclass
class ReplicaStage:
    """The stage. `alike` and `find` are what the agent knows of its replicas."""

    port: int = field(default_factory=free_port)
    chooser: ReplicaChooser = field(init=False)
    targets: Targets = field(init=False)
    replicas: list[ServingReplica] = field(
        default_factory=lambda: [
            ServingReplica(name, NAMESPACE, MODEL, host) for name, host in HOSTS.items()
        ]
    )
    # By the replica that answered.
    bodies: dict[str, list[bytes]] = field(default_factory=lambda: {one: [] for one in HOSTS})
    cut: list[str] = field(default_factory=list)
    away: set[str] = field(default_factory=set)
    goes_on: asyncio.Event = field(default_factory=asyncio.Event)
    tls: Any = None
    _before: dict[str, float] = field(default_factory=dict)

    def find(self, workload_id: str) -> tuple[str, int, str] | None:
        gone = workload_id in self.away
        return None if gone else ((HOSTS | OTHERS)[workload_id], self.port, workload_id)

    def alike(self, workload_id: str) -> list[ServingReplica]:
        return sorted(self.replicas, key=lambda one: one.workload_id != workload_id)

    def counted(self) -> dict[str, int]:
        """Outcomes since the last look."""
        now = {one: PICKS.labels(one)._value.get() for one in OUTCOMES}
        found = {one: int(now[one] - self._before.get(one, 0)) for one in OUTCOMES}
        self._before = now
        return {name: number for name, number in found.items() if number}

    async def open(self, workload_id: str = "eng-1") -> EngineConnection:
        """The gateway's connection to a replica, through the tunnel."""
        connection, self.serving = await connect(self.targets, workload_id)
        return connection

    def door(self, name: str) -> web.Application:
        """What answers at a replica's door."""

        async def answer(request: web.Request) -> web.StreamResponse:
            body = await request.read()
            self.bodies[name].append(body)
            response = web.StreamResponse(headers={"content-type": "application/json"})
            if not json.loads(body).get("stream"):
                return web.json_response({"by": name})
            await response.prepare(request)
            await response.write(b'{"by":')
            try:
                await self.goes_on.wait()
            except asyncio.CancelledError:
                self.cut.append(name)
                raise
            await response.write(json.dumps(name).encode() + b"}")
            return response

        app = web.Application(client_max_size=2**24)
        app.router.add_post("/v1/completions", answer)
        return app


async def connect(
    targets: Targets, workload_id: str
) -> tuple[EngineConnection, "asyncio.Task[None]"]:
    """A gateway's connection to a replica, and the task of the agent's side."""
    upstream = await targets.open(Target(workload_id=workload_id))
    ours, theirs = _streams()
    connection = EngineConnection(asyncio.get_running_loop())
    TunnelTransport(ours, connection)

    async def serve() -> None:
        try:
            await upstream.serve(theirs)
        finally:
            upstream.close()
            ours.abort()
            theirs.abort()

    serving = asyncio.create_task(serve())
    serving.add_done_callback(lambda task: task.cancelled() or task.exception())
    return connection, serving


@asynccontextmanager
async def replica_stage(address: str, **settings: Any) -> AsyncIterator[ReplicaStage]:
    """Three replicas, of which a picker at an address may choose."""
    async with AsyncExitStack() as stack:
        made = ReplicaStage()
        for name, host in HOSTS.items():
            await serve(stack, made.door(name), host, made.port)
        fields = {"namespace": NAMESPACE, "model": MODEL, "address": address, "timeout_ms": 5000}
        picker = PickerSettings.model_validate(fields | settings)
        made.chooser = ReplicaChooser([picker], made.alike)
        stack.push_async_callback(made.chooser.close)
        doors = cast("Any", made)
        made.targets = Targets(endpoint=lambda _: "", doors=doors, chooser=made.chooser)
        made.counted()
        yield made


async def serve(stack: AsyncExitStack, app: web.Application, host: str, port: int) -> None:
    """Serves an application until the end of the stack."""
    runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
    await runner.setup()
    stack.push_async_callback(runner.cleanup)
    await web.TCPSite(runner, host, port).start()


def said(model: str = MODEL, **fields: Any) -> bytes:
    """A request as the gateway writes it."""
    body = json.dumps({"model": model, "prompt": "the quick"} | fields).encode()
    head = (
        "POST /v1/completions HTTP/1.1\r\nhost: engine\r\ncontent-type: application/json\r\n"
        f"x-request-id: req-1\r\ncontent-length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


async def ask(connection: EngineConnection, *words: Any, **fields: Any) -> Any:
    """The JSON that comes of one request."""
    await connection.exchange(said(*words, **fields))
    answer = json.loads(await connection.read())
    connection.rest()
    return answer


async def check_choices(stage: ReplicaStage, prefer: Callable[[str], Awaitable[None]]) -> None:
    """Checks what pickers of every make do: `prefer` has one name a replica for new requests.

    The replica that it names answers, whichever the gateway chose, whole or streamed.
    """
    for name in ("eng-3", "eng-2", "eng-1"):
        await prefer(name)
        stage.counted()
        connection = await stage.open()
        assert await ask(connection) == {"by": name}
        stage.goes_on.set()
        assert await ask(connection, stream=True) == {"by": name}
        expected = "kept" if name == "eng-1" else "moved"
        assert stage.counted() == {expected: 2}
    stage.goes_on.clear()
