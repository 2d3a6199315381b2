"""Many real agents whose jobs are timers, and who die now and then."""

import asyncio
import contextlib
import random
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field

import grpc
import httpx
from tests.servers.jobs_plane import manifest_of

from windlass.api.clusters.v1 import clusters_pb2 as pb
from windlass.api.jobs.v1 import jobs_pb2
from windlass.api.runner.v1 import runner_pb2
from windlass_agent.agent import Agent
from windlass_agent.control import ControlPlane, enroll

SLOTS = 4
RUN_SECONDS = (0.05, 0.5)
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


class Timers:
    """An executor whose jobs wait a moment and say how they ended; they die with it."""

    def __init__(self, control: ControlPlane, ledger: Ledger, changed: asyncio.Event):
        self._control = control
        self._ledger = ledger
        self._changed = changed
        self._slots = asyncio.Semaphore(SLOTS)
        self._http = httpx.AsyncClient(timeout=60)
        self._runs: dict[str, tuple[int, asyncio.Task[None]]] = {}
        self._statuses: dict[str, pb.WorkloadStatus] = {}

    def capacity(self) -> pb.Capacity:
        return pb.Capacity(slots=SLOTS, backends=["trl"])

    def statuses(self) -> list[pb.WorkloadStatus]:
        return list(self._statuses.values())

    async def adopt(self) -> None:
        """Nothing outlived the life before."""

    async def close(self) -> None:
        tasks = [task for _, task in self._runs.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._http.aclose()

    async def apply(self, workload: pb.Workload) -> None:
        attempt, task = self._runs.get(workload.id, (0, None))
        known = self._statuses.get(workload.id)
        if workload.desired == pb.DESIRED_STATE_RUNNING and attempt == workload.job.attempt:
            if known is not None:
                self._say(workload, known.phase, reason=known.reason, message=known.message)
            return
        if task is not None:
            task.cancel()
        self._runs.pop(workload.id, None)
        if workload.desired == pb.DESIRED_STATE_DELETED:
            self._statuses.pop(workload.id, None)
            self._changed.set()
        elif workload.desired == pb.DESIRED_STATE_STOPPED:
            self._say(workload, pb.PHASE_STOPPED, reason="Stopped")
        elif (workload.id, workload.job.attempt) in self._ledger.began:
            # What ran in the life before died with it.
            self._say(workload, pb.PHASE_FAILED, reason="ProcessKilled", message="Killed.")
        else:
            run = asyncio.create_task(self._run(workload))
            self._runs[workload.id] = workload.job.attempt, run

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
        await self._control.finish(jobs_pb2.RunFinishRequest(run=run, finish=finish))
        self._ledger.finished[workload.id].append(workload.job.attempt)

    async def _upload(self, run: jobs_pb2.Run) -> None:
        jobs, metadata = self._control.jobs, self._control.metadata
        wanted = runner_pb2.CreateArtifactRequest(
            kind=runner_pb2.ARTIFACT_KIND_FINAL, step=1, manifest=manifest_of(CONTENT)
        )
        request = jobs_pb2.RunCreateArtifactRequest(run=run, artifact=wanted)
        begun = await jobs.CreateArtifact(request, metadata=metadata, timeout=60)
        for file in begun.uploads:
            (await self._http.put(file.url, content=CONTENT[file.path])).raise_for_status()
        commit = runner_pb2.CommitArtifactRequest(artifact_id=begun.artifact_id, is_adapter=True)
        done = jobs_pb2.RunCommitArtifactRequest(run=run, artifact=commit)
        await jobs.CommitArtifact(done, metadata=metadata, timeout=60)

    def _say(
        self,
        workload: pb.Workload,
        phase: "pb.Phase.ValueType",
        *,
        reason: str = "",
        message: str = "",
    ) -> None:
        self._statuses[workload.id] = pb.WorkloadStatus(
            workload_id=workload.id,
            generation=workload.generation,
            phase=phase,
            reason=reason,
            message=message,
        )
        self._changed.set()


class SwarmAgent:
    """One cluster's agent, through all its lives."""

    def __init__(self, address: str, enrolled: pb.EnrollResponse, ledger: Ledger):
        self._address = address
        self._credential = enrolled.credential
        self._ledger = ledger

    @classmethod
    async def join(cls, address: str, key: str, ledger: Ledger) -> "SwarmAgent":
        """Enrols with a registration key."""
        agent = cls(address, await enroll(address, key), ledger)
        await agent.live()
        return agent

    async def live(self) -> None:
        """Begins a life that knows nothing of the one before."""
        # A connection of its own, as agents have: one carries a hundred streams at most.
        self._control = ControlPlane(
            clusters=self._address, jobs=self._address, credential=self._credential
        )
        changed = asyncio.Event()
        timers = Timers(self._control, self._ledger, changed)
        agent = Agent(self._control, timers, changed, kind="process")
        self._life = asyncio.create_task(agent.run())
        await agent.accepted.wait()

    async def die(self) -> None:
        """Everything of it ends at once, its jobs too, without a word."""
        await self._control.close()
        self._life.cancel()
        await asyncio.gather(self._life, return_exceptions=True)
