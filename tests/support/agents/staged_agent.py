"""An agent with real processes against the real clusters service, and the stage it acts on.

Runners are `stage.py`, a small program that obeys files, given to the job driver as its
`runner_command`.
"""

import asyncio
import contextlib
import os
import shutil
import signal
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
from tests.support.agents import staged_process
from tests.support.fakes.job_desk import JobDesk
from tests.support.processes import warm
from tests.support.services.clusters import OWNER, ControlPlane, job, running_control_plane
from tests.support.waiting import until

from windlass.api.clusters.v1 import clusters_pb2 as pb
from windlass.api.jobs.v1 import jobs_pb2_grpc as jobs_rpc
from windlass.core.config import Settings
from windlass_agent.agent import Agent
from windlass_agent.control_plane.connection import ControlPlane as Line
from windlass_agent.executors.process.allotment import ResourceRequest
from windlass_agent.executors.process.assembly import process_executor
from windlass_agent.folders import socket_folder
from windlass_agent.machine import Machine


def lives(pid: int) -> bool:
    with contextlib.suppress(psutil.NoSuchProcess):
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    return False


@dataclass
class World:
    """A control plane, a cluster in it, and the folder that tells its runners what to do.

    `address` is how its agents reach the control plane.
    """

    plane: ControlPlane
    desk: JobDesk
    cluster: pb.EnrollResponse
    data: Path
    stage: Path
    address: str
    statuses: dict[str, pb.WorkloadStatus] = field(default_factory=dict)
    phases: dict[str, list[int]] = field(default_factory=dict)

    async def put(self, identifier: str, **values: Any) -> None:
        await self.plane.internal.PutWorkload(job(identifier, self.cluster.cluster_id, **values))

    async def follow(self) -> None:
        watch = self.plane.internal.WatchStatus(pb.WatchStatusRequest(owner=OWNER))
        async for delta in watch:
            for status in delta.statuses:
                self.statuses[status.workload_id] = status
                self.phases.setdefault(status.workload_id, []).append(status.phase)

    async def reach(
        self, identifier: str, phase: pb.Phase.ValueType, *, generation: int = 1
    ) -> pb.WorkloadStatus:
        def there() -> pb.WorkloadStatus | None:
            status = self.statuses.get(identifier)
            reached = status and (status.generation, status.phase) == (generation, phase)
            return status if reached else None

        return await until(there)

    def starts(self, name: str) -> list[int]:
        path = self.stage / f"{name}.starts"
        return [int(line) for line in path.read_text().split()] if path.exists() else []

    async def started(self, name: str) -> int:
        return (await until(lambda: self.starts(name)))[-1]

    def tell(self, name: str, word: str) -> None:
        draft = self.stage / f"{name}.draft"
        draft.write_text(word)
        draft.rename(self.stage / f"{name}.do")

    @contextlib.asynccontextmanager
    async def agent(self, **options: Any) -> AsyncIterator[asyncio.Task[None]]:
        """Runs the agent in this process; its runners outlive the block."""
        line = Line(
            clusters=self.address,
            jobs=self.address,
            credential=self.cluster.credential,
        )
        changed = asyncio.Event()
        settings: dict[str, Any] = {
            "machine": Machine(), "slots": 2, "engine_slots": 1, "engine_share": ResourceRequest(),
            "drain_seconds": 20.0, "stop_on_close": False,
            # The stage is no runner: it works in a folder of the test's.
            "confinement": "off",
            "runner_command": staged_process.runner_command(self.stage),
        }  # fmt: skip
        executor = process_executor(
            data=self.data,
            control=line,
            changed=changed.set,
            **(settings | options),
        )
        task = asyncio.create_task(Agent(line, executor, changed, kind="process").run())
        try:
            yield task
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await line.close()

    @contextlib.contextmanager
    def agent_process(
        self,
        variables: Mapping[str, str] | None = None,
        *,
        spares: int = 0,
        cold: bool = False,
    ) -> Iterator[Callable[[], warm.Process]]:
        """Starts agents as processes; kills the last one at the end."""
        started: list[warm.Process] = []
        credential = self.stage / "credential"
        credential.write_text(self.cluster.credential)
        root = Path(__file__).parents[3]
        environment = (
            os.environ
            | dict(variables or {})
            | {
                "PYTHONPATH": os.pathsep.join(
                    str(root / part) for part in ("services", "agent", ".")
                )
            }
        )

        def start() -> warm.Process:
            places = map(str, (self.address, credential, self.data, self.stage, spares))
            with (self.stage / "agent.log").open("ab") as output:
                process = warm.start(
                    staged_process.__file__,
                    *places,
                    environment=environment,
                    log=output,
                    cold=cold,
                )
            started.append(process)
            return process

        try:
            yield start
        finally:
            for process in started:
                process.kill()
                process.wait()


@contextlib.asynccontextmanager
async def staged_world(
    url: str, folder: Path, settings: Settings | None = None
) -> AsyncIterator[World]:
    """Yields a world without an agent; ends whatever its agents left running."""
    desk = JobDesk()
    stage = folder / "stage"
    stage.mkdir()
    served = (desk, jobs_rpc.add_JobsAgentServiceServicer_to_server)
    async with running_control_plane(
        url, folder / "server", jobs=served, settings=settings
    ) as plane:
        world = World(
            plane,
            desk,
            await plane.enroll(executor="process"),
            folder / "agent",
            stage,
            plane.address,
        )
        following = asyncio.create_task(world.follow())
        try:
            yield world
        finally:
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)
            shutil.rmtree(socket_folder(world.data))
            shutil.rmtree(plane.socket.parent)
            end_all(stage)


def end_all(stage: Path) -> None:
    """Kills what a test left: runners by an argument that is theirs alone, and what they made."""
    pids = [int(path.read_text()) for path in stage.glob("*.grandchild")]
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if str(stage) in process.cmdline():
                pids.append(process.pid)
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
