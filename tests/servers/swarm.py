"""Many agents on the real wire whose jobs are timers, and who dies now and then."""

import asyncio
import contextlib
import random
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import grpc
import httpx
from tests.servers.jobs_plane import manifest_of

from windlass.api.clusters.v1 import clusters_pb2 as pb
from windlass.api.clusters.v1 import clusters_pb2_grpc as rpc
from windlass.api.jobs.v1 import jobs_pb2, jobs_pb2_grpc
from windlass.api.runner.v1 import runner_pb2
from windlass.core.clients import CHANNEL_OPTIONS
from windlass.core.ids import new_id

SLOTS = 4
RUN_SECONDS = (0.05, 0.5)
BEAT_SECONDS = 3.0
# One job in so many uploads a model; the others end by a failure of their own, which costs less.
MODELS = 50
CONTENT = {"adapter_config.json": b"{}", "adapter_model.safetensors": b"weights"}


@dataclass
class Ledger:
    """What the swarm ran: who, which attempt of which job, from when to when."""

    began: dict[tuple[str, int], float] = field(default_factory=dict)
    ended: dict[tuple[str, int], float] = field(default_factory=dict)
    doubled: list[str] = field(default_factory=list)
    finished: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    kills: int = 0

    @contextlib.contextmanager
    def run(self, job_id: str, attempt: int) -> Iterator[None]:
        """One run of an attempt; notes a second one, and one beside that of another attempt."""
        key, now = (job_id, attempt), asyncio.get_running_loop().time
        if key in self.began:
            self.doubled.append(f"{job_id} attempt {attempt} began twice")
        for other in range(1, attempt):
            if (job_id, other) in self.began and (job_id, other) not in self.ended:
                self.doubled.append(f"{job_id} attempt {attempt} began beside {other}")
        self.began[key] = now()
        try:
            yield
        finally:
            self.ended[key] = now()


class SwarmAgent:
    """One cluster's agent in its present life."""

    def __init__(self, address: str, enrolled: pb.EnrollResponse, ledger: Ledger):
        self.cluster_id = enrolled.cluster_id
        self._ledger = ledger
        # A connection of its own, as agents have: one carries a hundred streams at most.
        self._channel = grpc.aio.insecure_channel(address, options=CHANNEL_OPTIONS)
        self._clusters: Any = rpc.ClustersAgentServiceStub(self._channel)
        self._jobs: Any = jobs_pb2_grpc.JobsAgentServiceStub(self._channel)
        self._metadata = (("authorization", f"Bearer {enrolled.credential}"),)
        self._http = httpx.AsyncClient(timeout=60)
        self._tasks: set[asyncio.Task[Any]] = set()

    @classmethod
    async def join(cls, address: str, key: str, ledger: Ledger) -> "SwarmAgent":
        """Enrols with a registration key."""
        async with grpc.aio.insecure_channel(address) as channel:
            stub: Any = rpc.ClustersAgentServiceStub(channel)
            enrolled = await stub.Enroll(pb.EnrollRequest(registration_key=key))
        agent = cls(address, enrolled, ledger)
        await agent.live()
        return agent

    async def live(self) -> None:
        """Begins a life that knows nothing of the one before."""
        self._session = new_id("session-")
        self._slots = asyncio.Semaphore(SLOTS)
        self._runs: dict[str, tuple[int, asyncio.Task[None]]] = {}
        self._news: dict[str, pb.WorkloadStatus] = {}
        self._changed = asyncio.Event()
        ready = asyncio.Event()
        self._spawn(self._watch(ready))
        await ready.wait()
        self._spawn(self._beat())
        self._spawn(self._report())

    async def die(self) -> None:
        """Everything of it ends at once, its jobs too."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def leave(self) -> None:
        """Dies for good."""
        await self.die()
        await self._channel.close()
        await self._http.aclose()

    def _spawn(self, work: Any) -> asyncio.Task[Any]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _watch(self, ready: asyncio.Event) -> None:
        while True:
            request = pb.WatchRequest(session_id=self._session, executor="process")
            with contextlib.suppress(grpc.aio.AioRpcError):
                async for delta in self._clusters.Watch(request, metadata=self._metadata):
                    for workload in delta.workloads:
                        self._take(workload, adopted=delta.snapshot and not ready.is_set())
                    ready.set()
            await asyncio.sleep(0.2)

    def _take(self, workload: pb.Workload, *, adopted: bool) -> None:
        attempt, run = self._runs.get(workload.id, (0, None))
        running = workload.desired == pb.DESIRED_STATE_RUNNING
        if run is not None and not (running and attempt == workload.job.attempt):
            run.cancel()
        if not running:
            self._runs.pop(workload.id, None)
            self._say(workload, pb.PHASE_STOPPED, reason="Deleted")
        elif attempt != workload.job.attempt:
            work = self._lost(workload) if adopted else self._run(workload)
            self._runs[workload.id] = workload.job.attempt, self._spawn(work)

    async def _lost(self, workload: pb.Workload) -> None:
        """What ran in the life before died with it; what had not begun does so now."""
        if (workload.id, workload.job.attempt) in self._ledger.began:
            self._say(workload, pb.PHASE_FAILED, reason="ProcessKilled", message="Killed.")
        else:
            await self._run(workload)

    async def _run(self, workload: pb.Workload) -> None:
        self._say(workload, pb.PHASE_PENDING, message="Waiting for a slot")
        async with self._slots:
            self._say(workload, pb.PHASE_RUNNING)
            with self._ledger.run(workload.id, workload.job.attempt):
                await asyncio.sleep(random.uniform(*RUN_SECONDS))
                with contextlib.suppress(grpc.aio.AioRpcError, httpx.HTTPError):
                    await self._finish(workload)
            self._say(workload, pb.PHASE_FAILED, reason="invalid_training_file")

    async def _finish(self, workload: pb.Workload) -> None:
        run = jobs_pb2.Run(job_id=workload.id, attempt=workload.job.attempt)
        finish = runner_pb2.FinishRequest(
            outcome=runner_pb2.OUTCOME_FAILED, error_code="invalid_training_file"
        )
        if sum(workload.id.encode()) % MODELS == 0:
            await self._upload(run)
            finish = runner_pb2.FinishRequest(outcome=runner_pb2.OUTCOME_SUCCEEDED)
        request = jobs_pb2.RunFinishRequest(run=run, finish=finish)
        await self._jobs.Finish(request, metadata=self._metadata, timeout=60)
        self._ledger.finished[workload.id].append(workload.job.attempt)

    async def _upload(self, run: jobs_pb2.Run) -> None:
        wanted = runner_pb2.CreateArtifactRequest(
            kind=runner_pb2.ARTIFACT_KIND_FINAL, step=1, manifest=manifest_of(CONTENT)
        )
        request = jobs_pb2.RunCreateArtifactRequest(run=run, artifact=wanted)
        begun = await self._jobs.CreateArtifact(request, metadata=self._metadata, timeout=60)
        for file in begun.uploads:
            (await self._http.put(file.url, content=CONTENT[file.path])).raise_for_status()
        commit = runner_pb2.CommitArtifactRequest(artifact_id=begun.artifact_id, is_adapter=True)
        request = jobs_pb2.RunCommitArtifactRequest(run=run, artifact=commit)
        await self._jobs.CommitArtifact(request, metadata=self._metadata, timeout=60)

    def _say(self, workload: pb.Workload, phase: Any, **fields: Any) -> None:
        self._news[workload.id] = pb.WorkloadStatus(
            workload_id=workload.id, generation=workload.generation, phase=phase, **fields
        )
        self._changed.set()

    async def _report(self) -> None:
        while True:
            await self._changed.wait()
            self._changed.clear()
            news, self._news = self._news, {}
            request = pb.ReportStatusRequest(session_id=self._session, statuses=news.values())
            try:
                await self._clusters.ReportStatus(request, metadata=self._metadata, timeout=60)
            except grpc.aio.AioRpcError:
                self._news = news | self._news
                self._changed.set()
            await asyncio.sleep(0.2)

    async def _beat_once(self) -> None:
        capacity = pb.Capacity(slots=SLOTS, backends=["trl"])
        request = pb.HeartbeatRequest(session_id=self._session, capacity=capacity)
        await self._clusters.Heartbeat(request, metadata=self._metadata, timeout=60)

    async def _beat(self) -> None:
        while True:
            with contextlib.suppress(grpc.aio.AioRpcError):
                await self._beat_once()
            await asyncio.sleep(BEAT_SECONDS)
