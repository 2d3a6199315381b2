"""Many real agents whose jobs only claim to train, and which die now and then.

A job waits a moment instead of running a process, then says and uploads what a runner does, by
the runner's own protocol: a step, a checkpoint, the model, its table of metrics, the end. A
thousand processes would cost more than all that is tested here.
"""

import asyncio
import contextlib
import random
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field

import grpc
import httpx
from tests.support.services.jobs_plane import manifest_of

from windlass.api.clusters.v1 import clusters_pb2 as pb
from windlass.api.jobs.v1 import jobs_pb2
from windlass.api.runner.v1 import runner_pb2
from windlass.core.backoff import Backoff
from windlass_agent.agent import Agent
from windlass_agent.control_plane.connection import ControlPlane, enroll
from windlass_agent.engines.load import EngineLoad
from windlass_agent.retrying import is_final

SLOTS = 4
RUN_SECONDS = (0.05, 0.5)
TOKENS = 100
STEP = 1
CONTENT = {"adapter_config.json": b"{}", "adapter_model.safetensors": b"weights"}
RESULT = {"step_metrics.csv": b"step,train_loss\n1,0.5\n"}


@dataclass
class Ledger:
    """Run of the swarm: the agent, the job and attempt, its start and its end."""

    began: dict[tuple[str, int], float] = field(default_factory=dict)
    ended: dict[tuple[str, int], float] = field(default_factory=dict)
    doubled: list[str] = field(default_factory=list)
    finished: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    kills: int = 0
    server_kills: int = 0
    # The most seconds by which the swarm's one loop was late: an agent that is later than its
    # lease cannot let go in time.
    late_seconds: float = 0.0

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
    """An executor whose jobs wait a moment and succeed; they die with it."""

    def __init__(self, control: ControlPlane, ledger: Ledger, changed: asyncio.Event):
        self._control = control
        self._ledger = ledger
        self._changed = changed
        self._slots = asyncio.Semaphore(SLOTS)
        self._http = httpx.AsyncClient(timeout=60)
        self._runs: dict[str, tuple[int, asyncio.Task[None]]] = {}
        self._statuses: dict[str, pb.WorkloadStatus] = {}
        self._applying = asyncio.Lock()

    async def engine_loads(self) -> dict[str, EngineLoad]:
        return {}

    def capacity(self) -> pb.Capacity:
        return pb.Capacity(slots=SLOTS, backends=["trl"])

    def statuses(self) -> list[pb.WorkloadStatus]:
        return list(self._statuses.values())

    async def adopt(self) -> None:
        """Does nothing: no run outlives the agent's previous life."""

    async def close(self) -> None:
        tasks = [task for _, task in self._runs.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._http.aclose()

    async def apply(self, workload: pb.Workload) -> None:
        async with self._applying:
            await self._apply(workload)

    async def _apply(self, workload: pb.Workload) -> None:
        attempt, task = self._runs.get(workload.id, (0, None))
        known = self._statuses.get(workload.id)
        if workload.desired == pb.DESIRED_STATE_RUNNING and attempt == workload.job.attempt:
            if known is not None:
                self._say(workload, known.phase, reason=known.reason, message=known.message)
            return
        if task is not None:
            task.cancel()
            # A process that was told to end may not have ended.
            await asyncio.wait({task})
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
                run = jobs_pb2.Run(job_id=workload.id, attempt=workload.job.attempt)
                backoff = Backoff(longest=1.0)
                while True:
                    try:
                        await self._train(run)
                        break
                    except grpc.aio.AioRpcError as error:
                        if is_final(error):
                            self._say(workload, pb.PHASE_FAILED, reason="ProcessKilled")
                            return
                    except httpx.HTTPError:
                        """The server is away, or the URL is one of its life before."""
                    await backoff.pause()
            self._ledger.finished[workload.id].append(workload.job.attempt)
            self._say(workload, pb.PHASE_SUCCEEDED)

    async def _train(self, run: jobs_pb2.Run) -> None:
        """Reports one step as a runner does; any of it may be reported again."""
        losses = {"train_loss": 0.5}
        metrics = runner_pb2.StepMetrics(
            step=STEP, total_steps=STEP, epoch=1.0, values=losses, trained_tokens=TOKENS
        )
        event = runner_pb2.RunEvent(seq=1, at_ms=1, metrics=metrics)
        report = jobs_pb2.RunReportRequest(run=run, report=runner_pb2.ReportRequest(events=[event]))
        await self._control.jobs.Report(report, metadata=self._control.metadata, timeout=60)
        await self._upload(run, runner_pb2.ARTIFACT_KIND_CHECKPOINT, CONTENT)
        await self._upload(run, runner_pb2.ARTIFACT_KIND_RESULT_FILE, RESULT)
        await self._upload(run, runner_pb2.ARTIFACT_KIND_FINAL, CONTENT)
        finish = runner_pb2.FinishRequest(
            outcome=runner_pb2.OUTCOME_SUCCEEDED, trained_tokens=TOKENS, last_seq=event.seq
        )
        await self._control.finish(jobs_pb2.RunFinishRequest(run=run, finish=finish))

    async def _upload(
        self, run: jobs_pb2.Run, kind: "runner_pb2.ArtifactKind.ValueType", files: dict[str, bytes]
    ) -> None:
        jobs, metadata = self._control.jobs, self._control.metadata
        wanted = runner_pb2.CreateArtifactRequest(kind=kind, step=STEP, manifest=manifest_of(files))
        request = jobs_pb2.RunCreateArtifactRequest(run=run, artifact=wanted)
        begun = await jobs.CreateArtifact(request, metadata=metadata, timeout=60)
        for file in begun.uploads:
            (await self._http.put(file.url, content=files[file.path])).raise_for_status()
        commit = runner_pb2.CommitArtifactRequest(
            artifact_id=begun.artifact_id, is_adapter=files is CONTENT
        )
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
        """Starts anew without any state of the previous life."""
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
        """Ends the agent and its jobs at once, without telling anybody."""
        await self._control.close()
        self._life.cancel()
        await asyncio.gather(self._life, return_exceptions=True)
