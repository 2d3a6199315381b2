"""An agent on the real wire that runs nothing: it notes what it is told, and says what it is asked.

It joins as any foreign cluster does: registered over HTTP, enrolled and watching over gRPC, and at
its end of the tunnel where that is asked for.
"""

import asyncio
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any

import grpc
from tests.bench.plant import Plant

from windlass.api.clusters.v1 import clusters_pb2 as pb
from windlass.api.clusters.v1 import clusters_pb2_grpc as rpc
from windlass.core.ids import new_id
from windlass_agent.control_plane.connection import ControlPlane
from windlass_agent.tunnel.targets import Targets
from windlass_agent.tunnel.tunnel import Tunnel

CAPACITY = pb.Capacity(
    slots=1_000_000, engine_slots=1000, engines=["builtin", "vllm"], backends=["trl"]
)
BEAT_SECONDS = 1.0


class StubAgent:
    """One life of it."""

    def __init__(self, stub: rpc.ClustersAgentServiceAsyncStub, credential: str):
        self._stub = stub
        self._credential = credential
        self._metadata = (("authorization", f"Bearer {credential}"),)
        self._session = new_id("session-")
        self.watching = asyncio.Event()

    async def watch(self, on_workload: Callable[[pb.Workload], Awaitable[None]]) -> None:
        """Hands on each workload as it comes, until cancelled."""
        request = pb.WatchRequest(session_id=self._session, agent_version="1", executor="process")
        async for delta in self._stub.Watch(request, metadata=self._metadata):
            self.watching.set()
            for workload in delta.workloads:
                await on_workload(workload)

    async def beat(self) -> None:
        """Says that it lives, until cancelled."""
        while True:
            request = pb.HeartbeatRequest(session_id=self._session, capacity=CAPACITY)
            await self._stub.Heartbeat(request, metadata=self._metadata)
            await asyncio.sleep(BEAT_SECONDS)

    async def running(self, workload: pb.Workload, endpoint: str) -> None:
        """Reports that a workload runs at an address."""
        status = pb.WorkloadStatus(
            workload_id=workload.id,
            generation=workload.generation,
            phase=pb.PHASE_RUNNING,
            endpoint=endpoint,
            capabilities=pb.EngineCapabilities(
                adapters=True,
                embeddings=True,
                context_length=4096,
                cache_salt=workload.engine.engine == "vllm",
            ),
        )
        request = pb.ReportStatusRequest(session_id=self._session, statuses=[status])
        await self._stub.ReportStatus(request, metadata=self._metadata)

    async def tunnel(self, address: str, engine: str) -> None:
        """Holds the tunnel, at whose end every workload is one engine, until cancelled."""
        control = ControlPlane(clusters=address, jobs=address, credential=self._credential)
        try:
            await Tunnel(control, Targets(endpoint=lambda _: engine)).run(self._session)
        finally:
            await control.close()


OnWorkload = Callable[[StubAgent, pb.Workload], Awaitable[None]]


def running_at(*engines: str) -> OnWorkload:
    """Reports that workloads which should run do so, the first at the first engine and so on."""
    turns = itertools.cycle(engines)
    at: dict[str, str] = {}

    async def report(agent: StubAgent, workload: pb.Workload) -> None:
        if workload.desired == pb.DESIRED_STATE_RUNNING:
            if workload.id not in at:
                at[workload.id] = next(turns)
            await agent.running(workload, at[workload.id])

    return report


# Its engines are on this machine, at addresses that the operator names.
MACHINE = {"name": "bench", "executor": "process", "shared": True, "addresses": ["127.0.0.1"]}


@asynccontextmanager
async def joined(
    plant: Plant,
    on_workload: OnWorkload,
    *,
    roles: Sequence[str] = ("jobs", "engines"),
    tunnelled: str = "",
) -> AsyncIterator[StubAgent]:
    """A live agent, which takes workloads of these roles, until the end of the block.

    It has a tunnel if an engine is to be `tunnelled`.
    """
    machine = {**MACHINE, "roles": list(roles)}
    with plant.windlass.http() as http:
        registered = http.post("/v1/clusters", json=machine).raise_for_status().json()
    async with grpc.aio.insecure_channel(plant.grpc_address) as channel:
        stub = rpc.ClustersAgentServiceStub(channel)
        request = pb.EnrollRequest(registration_key=registered["registration_key"])
        agent = StubAgent(stub, (await stub.Enroll(request)).credential)
        work: list[Coroutine[Any, Any, None]] = [
            agent.watch(lambda workload: on_workload(agent, workload)),
            agent.beat(),
        ]
        if tunnelled:
            work.append(agent.tunnel(plant.grpc_address, tunnelled))
        tasks = [asyncio.create_task(one) for one in work]
        await asyncio.wait_for(agent.watching.wait(), 20)
        try:
            yield agent
            for task in tasks:
                if task.done():
                    await task
        finally:
            for task in tasks:
                task.cancel()
            with suppress(asyncio.CancelledError):
                await asyncio.gather(*tasks, return_exceptions=True)
