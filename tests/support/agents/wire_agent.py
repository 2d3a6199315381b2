"""An agent on the wire that enrols, watches, and reports what a test has it run."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Self

import grpc
from tests.support.waiting import PATIENCE, until

from windlass.api.clusters.v1 import clusters_pb2 as pb
from windlass.api.clusters.v1 import clusters_pb2_grpc as rpc
from windlass.core.app import App
from windlass.core.ids import new_id


class WireAgent:
    """One session of an agent whose cluster offers the named engines."""

    executor = "process"

    def __init__(
        self,
        app: App,
        cluster_id: str,
        credential: str,
        engines: tuple[str, ...],
        *,
        keeps_models: bool = False,
        capacity: pb.Capacity | None = None,
    ):
        self.cluster_id = cluster_id
        self.workloads: dict[str, pb.Workload] = {}
        channel = grpc.aio.insecure_channel(app.clients.address("clusters"))
        self._channel = channel
        self._stub = rpc.ClustersAgentServiceStub(channel)
        self._metadata = (("authorization", f"Bearer {credential}"),)
        self._session = new_id("session-")
        self._engines = engines
        self._keeps_models = keeps_models
        # What it has beside that.
        self._capacity = capacity or pb.Capacity()
        # Of its capacity, what it says beside the rest.
        self.said: dict[str, Any] = {}
        self.spec = pb.ClusterSpec()
        self._tasks: list[asyncio.Task[None]] = []

    @classmethod
    async def join(
        cls,
        app: App,
        name: str = "east",
        *,
        engines: tuple[str, ...] = ("builtin",),
        keeps_models: bool = False,
        capacity: pb.Capacity | None = None,
        run_folder: str = "/run",
    ) -> Self:
        """Enrols; the agent is live when this returns."""
        internal = app.clients.stub(rpc.ClustersInternalServiceStub)
        is_machine = cls.executor == "process"
        request = pb.EnrollLocalRequest(
            name=name, executor=cls.executor, run_folder=run_folder if is_machine else ""
        )
        enrolled = await internal.EnrollLocal(request)
        known = enrolled.cluster_id, enrolled.credential
        agent = cls(app, *known, engines, keeps_models=keeps_models, capacity=capacity)
        watching = asyncio.Event()
        agent._tasks.append(asyncio.create_task(agent._watch(watching)))
        await asyncio.wait_for(watching.wait(), PATIENCE)
        await agent._heartbeat()
        agent._tasks.append(asyncio.create_task(agent._beat()))
        return agent

    async def _watch(self, watching: asyncio.Event) -> None:
        request = pb.WatchRequest(
            session_id=self._session, agent_version="1", executor=self.executor
        )
        with suppress(grpc.aio.AioRpcError):
            async for delta in self._stub.Watch(request, metadata=self._metadata):
                if delta.snapshot:
                    self.workloads.clear()
                if delta.HasField("spec"):
                    self.spec = delta.spec
                for workload in delta.workloads:
                    self.workloads[workload.id] = workload
                watching.set()

    async def _heartbeat(self) -> None:
        capacity = pb.Capacity(
            slots=1,
            engine_slots=4,
            engines=self._engines,
            keeps_models=self._keeps_models,
            **self.said,
        )
        capacity.MergeFrom(self._capacity)
        request = pb.HeartbeatRequest(session_id=self._session, capacity=capacity)
        await self._stub.Heartbeat(request, metadata=self._metadata)

    async def hold(self, *versions: str) -> None:
        """Reports versions of models whose files are there."""
        self.said["model_versions"] = versions
        await self._heartbeat()

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(1)
            await self._heartbeat()

    def engines(self, model: str = "") -> list[pb.Workload]:
        """Returns the engines that should run, of one model or of all."""
        return [
            workload
            for workload in self.workloads.values()
            if workload.desired == pb.DESIRED_STATE_RUNNING and model in ("", workload.engine.model)
        ]

    async def next_engine(
        self, model: str = "", matches: Callable[[pb.Workload], bool] = lambda _: True
    ) -> pb.Workload:
        """Waits for an engine that should run and matches, and returns it."""
        found: list[pb.Workload] = await until(
            lambda: [one for one in self.engines(model) if matches(one)]
        )
        return found[0]

    async def report(self, workload: pb.Workload, phase: Any, **fields: Any) -> None:
        """Reports the status of a workload."""
        status = pb.WorkloadStatus(
            workload_id=workload.id, generation=workload.generation, phase=phase, **fields
        )
        request = pb.ReportStatusRequest(session_id=self._session, statuses=[status])
        await self._stub.ReportStatus(request, metadata=self._metadata)

    async def run(self, workload: pb.Workload, *, adapters: bool = True, **load: int | None) -> str:
        """Reports an engine as running with everything loaded; returns its endpoint."""
        endpoint = f"unix:///run/e-{workload.id}/s"
        loaded = [
            pb.LoadedAdapter(id=adapter.id, version_id=adapter.version_id)
            for adapter in workload.engine.adapters
        ]
        await self.report(
            workload,
            pb.PHASE_RUNNING,
            endpoint=endpoint,
            adapters=loaded if adapters else (),
            capabilities=pb.EngineCapabilities(adapters=True, embeddings=True, context_length=512),
            load=pb.ServingLoad(**load),
        )
        return endpoint

    async def leave(self) -> None:
        """Ends the session without telling the control plane."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._channel.close()
