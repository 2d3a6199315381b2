"""The agent with real processes, against the real clusters service over real gRPC.

Runners are `tests/servers/stage.py`, a small program that obeys files, given to
the job driver as its `runner_command`; the real runner has its own tests.
"""

import asyncio
import contextlib
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
import psutil
import pytest
from tests.servers import agent_process
from tests.servers.clusters import OWNER, ControlPlane, job, running_control_plane, until
from tests.servers.job_desk import JobDesk

from windlass.api.clusters.v1 import clusters_pb2 as pb
from windlass.api.clusters.v1 import clusters_pb2_grpc as clusters_rpc
from windlass.api.jobs.v1 import jobs_pb2_grpc as jobs_rpc
from windlass.api.runner.v1 import runner_pb2, runner_pb2_grpc
from windlass.core.errors import from_rpc
from windlass_agent.agent import Agent, Fenced
from windlass_agent.control import ControlPlane as Line
from windlass_agent.executors.process.assembly import process_executor
from windlass_agent.folders import socket_folder

RUNNING, STOPPED, DELETED = (
    pb.DESIRED_STATE_RUNNING,
    pb.DESIRED_STATE_STOPPED,
    pb.DESIRED_STATE_DELETED,
)


def lives(pid: int) -> bool:
    with contextlib.suppress(psutil.NoSuchProcess):
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    return False


@dataclass
class World:
    """A control plane, a cluster in it, and the folder that tells its runners what to do."""

    plane: ControlPlane
    desk: JobDesk
    cluster: pb.EnrollResponse
    data: Path
    stage: Path
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
        self, identifier: str, phase: pb.Phase, *, generation: int = 1
    ) -> pb.WorkloadStatus:
        def there() -> pb.WorkloadStatus | None:
            status = self.statuses.get(identifier)
            reached = status and (status.generation, status.phase) == (generation, phase)
            return status if reached else None

        return await until(there, 15)

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
        """The agent in this process; at the end it leaves its runners alone."""
        line = Line(
            clusters=self.plane.address,
            jobs=self.plane.address,
            credential=self.cluster.credential,
        )
        changed = asyncio.Event()
        settings: dict[str, Any] = {
            "slots": 2, "engine_slots": 1, "drain_seconds": 20.0, "stop_on_close": False,
        }  # fmt: skip
        executor = process_executor(
            data=self.data,
            control=line,
            changed=changed.set,
            runner_command=agent_process.runner_command(self.stage),
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
    def agent_process(self) -> Iterator[Callable[[], "subprocess.Popen[bytes]"]]:
        """Starts agents as processes; kills the last one at the end."""
        started: list[subprocess.Popen[bytes]] = []
        credential = self.stage / "credential"
        credential.write_text(self.cluster.credential)
        root = Path(__file__).parents[2]
        environment = os.environ | {
            "PYTHONPATH": os.pathsep.join(str(root / part) for part in ("services", "agent", "."))
        }

        def start() -> "subprocess.Popen[bytes]":
            places = map(str, (self.plane.address, credential, self.data, self.stage))
            with (self.stage / "agent.log").open("ab") as output:
                command = [sys.executable, "-P", agent_process.__file__, *places]
                process = subprocess.Popen(command, env=environment, stdout=output, stderr=output)
            started.append(process)
            return process

        try:
            yield start
        finally:
            for process in started:
                process.kill()
                process.wait()


@pytest.fixture
async def world(database_url: str, tmp_path: Path) -> AsyncIterator[World]:
    desk, stage = JobDesk(), tmp_path / "stage"
    stage.mkdir()
    served = (desk, jobs_rpc.add_JobsAgentServiceServicer_to_server)
    async with running_control_plane(database_url, tmp_path / "server", jobs=served) as plane:
        world = World(plane, desk, await plane.enroll(), tmp_path / "agent", stage)
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


async def test_a_job_runs_and_its_log_and_result_arrive_once(world: World) -> None:
    async with world.agent():
        await world.put("job-1")
        await world.reach("job-1", pb.PHASE_RUNNING)
        await until(lambda: world.desk.log("job-1") == b"begun\n")
        world.desk.lose_answers = 3
        world.tell("job-1-1", "succeed")
        await world.reach("job-1", pb.PHASE_SUCCEEDED)
        # The result says more than the status, so it is told first.
        assert world.desk.finished
        await until(lambda: world.desk.log("job-1").endswith(b"done\n"))
        assert world.desk.log("job-1") == b"begun\ndone\n"
        (finish,) = world.desk.finished
        assert (finish.run.attempt, finish.finish.outcome) == (1, runner_pb2.OUTCOME_SUCCEEDED)
        await until(lambda: not (world.data / "workloads" / "job-1-1").exists())
        await world.put("job-1", generation=2, desired=DELETED)
        await world.reach("job-1", pb.PHASE_STOPPED, generation=2)
        await until(lambda: not list((world.data / "workloads").iterdir()))
    assert len(world.starts("job-1-1")) == 1


async def test_a_failure_tells_its_reason(world: World) -> None:
    async with world.agent():
        await world.put("job-1")
        await world.started("job-1-1")
        world.tell("job-1-1", "fail")
        status = await world.reach("job-1", pb.PHASE_FAILED)
        assert (status.reason, status.message) == ("invalid_training_file", "Line 3.")
        await world.put("job-2")
        os.kill(await world.started("job-2-1"), signal.SIGKILL)
        assert (await world.reach("job-2", pb.PHASE_FAILED)).reason == "ProcessKilled"
        await world.put("job-3")
        await world.started("job-3-1")
        world.tell("job-3-1", "crash")
        assert (await world.reach("job-3", pb.PHASE_FAILED)).reason == "ProcessExited"


async def test_nothing_of_a_session_outlives_its_leader(world: World) -> None:
    async with world.agent():
        await world.put("job-1")
        await world.started("job-1-1")
        world.tell("job-1-1", "leave")
        await world.reach("job-1", pb.PHASE_FAILED)
        grandchild = int((world.stage / "job-1-1.grandchild").read_text())
        await until(lambda: not lives(grandchild))


async def test_jobs_wait_for_slots_in_their_order(world: World) -> None:
    async with world.agent(slots=1):
        for number in range(3):
            await world.put(f"job-{number}")
            await until(lambda number=number: f"job-{number}" in world.statuses)
        await world.reach("job-0", pb.PHASE_RUNNING)
        await until(lambda: [world.statuses[f"job-{n}"].queue_position for n in (1, 2)] == [1, 2])
        waiting = world.statuses["job-2"]
        assert (waiting.phase, waiting.message) == (pb.PHASE_PENDING, "Waiting for a slot")
        await world.put("job-1", generation=2, desired=STOPPED)
        await world.reach("job-1", pb.PHASE_STOPPED, generation=2)
        await until(lambda: world.statuses["job-2"].queue_position == 1)
        world.tell("job-0-1", "succeed")
        await world.reach("job-2", pb.PHASE_RUNNING)
    assert not world.starts("job-1-1")


async def test_a_stop_is_graceful_and_a_deletion_is_not(world: World) -> None:
    async with world.agent():
        await world.put("job-1")
        await world.started("job-1-1")
        await world.put("job-1", generation=2, desired=STOPPED)
        await world.reach("job-1", pb.PHASE_STOPPED, generation=2)
        assert (world.stage / "job-1-1.asked").exists()
        await world.put("job-2")
        pid = await world.started("job-2-1")
        await world.put("job-2", generation=2, desired=DELETED)
        await world.reach("job-2", pb.PHASE_STOPPED, generation=2)
        assert not lives(pid)
        assert not (world.stage / "job-2-1.asked").exists()


async def test_who_does_not_stop_is_killed_after_the_drain_time(world: World) -> None:
    (world.stage / "stubborn").touch()
    async with world.agent(drain_seconds=0.5):
        await world.put("job-1")
        pid = await world.started("job-1-1")
        await world.put("job-1", generation=2, desired=STOPPED)
        await world.reach("job-1", pb.PHASE_STOPPED, generation=2)
        assert (world.stage / "job-1-1.asked").exists()
        assert not lives(pid)
    assert pb.PHASE_STOPPING in world.phases["job-1"]


async def test_a_new_attempt_begins_when_the_old_one_is_gone(world: World) -> None:
    async with world.agent():
        await world.put("job-1")
        first = await world.started("job-1-1")
        await world.put("job-1", generation=2, attempt=2)
        await world.started("job-1-2")
        assert not lives(first)
        await world.reach("job-1", pb.PHASE_RUNNING, generation=2)
        await until(lambda: not (world.data / "workloads" / "job-1-1.json").exists())


async def test_a_superseded_attempt_is_killed(world: World) -> None:
    async with world.agent():
        await world.put("job-1")
        pid = await world.started("job-1-1")
        world.desk.superseded.add(("job-1", 1))
        token = (world.stage / "job-1-1.token").read_text()
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await assignment(world, token)
        assert caught.value.code() is grpc.StatusCode.FAILED_PRECONDITION
        assert from_rpc(caught.value).reason == "attempt_superseded"
        await until(lambda: not lives(pid))


async def assignment(world: World, token: str) -> runner_pb2.Assignment:
    socket = socket_folder(world.data) / "agent.sock"
    async with grpc.aio.insecure_channel(f"unix://{socket}") as channel:
        stub = runner_pb2_grpc.RunnerServiceStub(channel)
        return await stub.GetAssignment(
            runner_pb2.GetAssignmentRequest(), metadata=(("authorization", f"Bearer {token}"),)
        )


async def test_a_runner_speaks_for_its_own_attempt_alone(world: World) -> None:
    async with world.agent():
        for name in ("job-1", "job-2"):
            await world.put(name)
            await world.started(f"{name}-1")
        tokens = [(world.stage / f"job-{n}-1.token").read_text() for n in (1, 2)]
        assert len(set(tokens)) == 2
        for number, token in enumerate(tokens, 1):
            assert (await assignment(world, token)).job_id == f"job-{number}"
        assert world.desk.assigned[0] == ("job-1", 1, world.cluster.cluster_id)
        world.tell("job-1-1", "succeed")
        await world.reach("job-1", pb.PHASE_SUCCEEDED)
        await until(lambda: world.desk.finished)
        for stranger in ("nonsense", "", tokens[0]):
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await until_refused(world, stranger)
            assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED
    private = [path for path in world.data.rglob("*") if path.is_file()]
    assert all(path.stat().st_mode & 0o077 == 0 for path in private if path.suffix == ".json")


async def until_refused(world: World, token: str) -> None:
    """A token is good until its attempt has delivered what it owed."""
    async with asyncio.timeout(10):
        while True:
            await assignment(world, token)
            await asyncio.sleep(0.02)


async def test_what_a_snapshot_omits_is_killed(world: World) -> None:
    async with world.agent():
        await world.put("job-1")
        pid = await world.started("job-1-1")
    assert lives(pid)
    async with world.plane.app.database.begin() as connection:
        await connection.exec_driver_sql("DELETE FROM clusters_workloads")
    async with world.agent():
        await until(lambda: not lives(pid))
        await until(lambda: not list((world.data / "workloads").glob("*.json")))


async def test_an_agent_that_is_closed_may_stop_its_runners(world: World) -> None:
    async with world.agent(stop_on_close=True):
        await world.put("job-1")
        pid = await world.started("job-1-1")
        await world.reach("job-1", pb.PHASE_RUNNING)
    assert not lives(pid)
    assert (await world.reach("job-1", pb.PHASE_STOPPED)).reason == "AgentStopped"
    assert (world.stage / "job-1-1.asked").exists()


async def test_a_fenced_agent_stops_everything(world: World, tmp_path: Path) -> None:
    async with world.agent() as first:
        await world.put("job-1")
        pid = await world.started("job-1-1")
        usurper = World(world.plane, world.desk, world.cluster, tmp_path / "other", world.stage)
        async with usurper.agent():
            with pytest.raises(Fenced):
                await asyncio.wait_for(first, 15)
            assert not lives(pid)
            await until(lambda: len(world.starts("job-1-1")) == 2)


async def test_an_unregistered_agent_stops_everything(world: World) -> None:
    async with world.agent() as agent, world.plane.channel() as channel:
        await world.put("job-1")
        pid = await world.started("job-1-1")
        await clusters_rpc.ClustersServiceStub(channel).UnregisterCluster(
            pb.UnregisterClusterRequest(cluster_id=world.cluster.cluster_id),
            **world.plane.tenant(),
        )
        with pytest.raises(Fenced):
            await asyncio.wait_for(agent, 15)
        assert not lives(pid)


@pytest.mark.faults
async def test_a_killed_agent_adopts_its_runner(world: World) -> None:
    with world.agent_process() as start:
        first = start()
        await world.put("job-1")
        pid = await world.started("job-1-1")
        await world.reach("job-1", pb.PHASE_RUNNING)
        token = (world.stage / "job-1-1.token").read_text()
        first.kill()
        first.wait()
        assert lives(pid)
        start()
        # The token of before is good again, so the runner goes on as if nothing had been.
        await until_assigned(world, token)
        await world.put("job-1", generation=2, desired=RUNNING)
        await world.reach("job-1", pb.PHASE_RUNNING, generation=2)
        assert world.starts("job-1-1") == [pid]
        world.tell("job-1-1", "succeed")
        await world.reach("job-1", pb.PHASE_SUCCEEDED, generation=2)
        await until(lambda: world.desk.log("job-1") == b"begun\ndone\n")
    assert world.starts("job-1-1") == [pid]


async def until_assigned(world: World, token: str) -> None:
    async with asyncio.timeout(15):
        while True:
            with contextlib.suppress(grpc.aio.AioRpcError):
                await assignment(world, token)
                return
            await asyncio.sleep(0.02)


@pytest.mark.faults
async def test_what_ended_while_the_agent_was_dead_is_told_once(world: World) -> None:
    with world.agent_process() as start:
        first = start()
        for name in ("job-1", "job-2"):
            await world.put(name)
            await world.started(f"{name}-1")
        first.kill()
        first.wait()
        world.tell("job-1-1", "succeed")
        world.tell("job-2-1", "leave")
        await until(lambda: not any(lives(world.starts(f"job-{n}-1")[0]) for n in (1, 2)))
        grandchild = int((world.stage / "job-2-1.grandchild").read_text())
        assert lives(grandchild)
        start()
        await world.reach("job-1", pb.PHASE_SUCCEEDED)
        assert (await world.reach("job-2", pb.PHASE_FAILED)).reason == "RunnerLost"
        await until(lambda: not lives(grandchild))
        await until(lambda: world.desk.finished)
    assert len(world.starts("job-1-1")) == len(world.starts("job-2-1")) == 1


@pytest.mark.faults
async def test_an_orphan_that_nobody_wants_is_killed(world: World) -> None:
    with world.agent_process() as start:
        first = start()
        await world.put("job-1")
        pid = await world.started("job-1-1")
        first.kill()
        first.wait()
        await world.put("job-1", generation=2, desired=DELETED)
        assert lives(pid)
        start()
        await until(lambda: not lives(pid))
        await world.reach("job-1", pb.PHASE_STOPPED, generation=2)


@pytest.mark.faults
async def test_an_agent_killed_while_starting_a_runner_finds_it(world: World) -> None:
    """The record names no pid yet, as when the agent dies between fork and write."""
    with world.agent_process() as start:
        first = start()
        await world.put("job-1")
        pid = await world.started("job-1-1")
        first.kill()
        first.wait()
        record = world.data / "workloads" / "job-1-1.json"
        record.write_text(record.read_text().replace(f'"pid":{pid}', '"pid":0'))
        start()
        await until_assigned(world, (world.stage / "job-1-1.token").read_text())
        world.tell("job-1-1", "succeed")
        await world.reach("job-1", pb.PHASE_SUCCEEDED)
    assert world.starts("job-1-1") == [pid]


@pytest.mark.faults
async def test_a_second_agent_on_one_folder_does_not_start(world: World) -> None:
    with world.agent_process() as start:
        start()
        await world.put("job-1")
        await world.started("job-1-1")
        assert await asyncio.to_thread(start().wait, 30) != 0
    assert len(world.starts("job-1-1")) == 1
