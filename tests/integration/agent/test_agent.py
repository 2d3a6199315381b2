"""The agent with real processes, against the real clusters service over real gRPC.

Its runners act on a stage; the real runner has its own tests.
"""

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import grpc
import pytest
from structlog.testing import capture_logs
from tests.support.agents.staged_agent import World, lives, staged_world
from tests.support.folders import files_below
from tests.support.waiting import PATIENCE, until

from windlass.api.clusters.v1 import clusters_pb2 as pb
from windlass.api.clusters.v1 import clusters_pb2_grpc as clusters_rpc
from windlass.api.runner.v1 import runner_pb2, runner_pb2_grpc
from windlass.core.errors import from_rpc
from windlass_agent.agent import Fenced
from windlass_agent.folders import socket_folder

RUNNING, STOPPED, DELETED = (
    pb.DESIRED_STATE_RUNNING,
    pb.DESIRED_STATE_STOPPED,
    pb.DESIRED_STATE_DELETED,
)


@pytest.fixture
async def world(database_url: str, tmp_path: Path) -> AsyncIterator[World]:
    async with staged_world(database_url, tmp_path) as made:
        yield made


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
        with capture_logs() as logs:
            world.tell("job-3-1", "crash")
            status = await world.reach("job-3", pb.PHASE_FAILED)
        assert (status.reason, status.message) == (
            "ProcessExited",
            "The runner ended with 1 and no result. Its last output: OSError: [Errno 5] Nobody "
            "foresaw this: 'model'.",
        )
        (logged,) = [entry for entry in logs if entry["event"] == "attempt_failed"]
        assert logged["attempt"] == "job-3-1"
        assert "Traceback" in logged["output"], "the operator reads all of it"
        assert str(world.data) in logged["output"]


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
            await until(partial(world.statuses.get, f"job-{number}"))
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
    async with world.agent(drain_seconds=2.0):
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
    socket = socket_folder(world.data) / "agent" / "s"
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
            # A token is good until its attempt has delivered what it owed.
            code = await until(partial(refusal, world, stranger))
            assert code is grpc.StatusCode.UNAUTHENTICATED
    private = files_below(world.data)
    assert all(path.stat().st_mode & 0o077 == 0 for path in private if path.suffix == ".json")


async def accepted(world: World, token: str) -> bool:
    return await refusal(world, token) is None


async def refusal(world: World, token: str) -> grpc.StatusCode | None:
    """Returns why a runner's token is refused; None where it is accepted."""
    try:
        await assignment(world, token)
    except grpc.aio.AioRpcError as error:
        return error.code()
    return None


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
        usurper = replace(world, data=tmp_path / "other")
        async with usurper.agent():
            with pytest.raises(Fenced):
                await asyncio.wait_for(first, PATIENCE)
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
            await asyncio.wait_for(agent, PATIENCE)
        assert not lives(pid)


async def test_its_credential_is_renewed_and_goes_with_its_cluster(world: World) -> None:
    credential = world.stage / "credential"
    with world.agent_process() as start:
        process = start()
        await until(lambda: credential.read_text().startswith("{"))
        assert world.cluster.credential not in credential.read_text()
        assert credential.stat().st_mode & 0o777 == 0o600
        async with world.plane.channel() as channel:
            await clusters_rpc.ClustersServiceStub(channel).UnregisterCluster(
                pb.UnregisterClusterRequest(cluster_id=world.cluster.cluster_id),
                **world.plane.tenant(),
            )
        # Its next start begins with a registration key.
        await until(lambda: not credential.exists())
        assert await asyncio.to_thread(process.wait, 30) != 0


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
        await until(lambda: accepted(world, token))
        await world.put("job-1", generation=2, desired=RUNNING)
        await world.reach("job-1", pb.PHASE_RUNNING, generation=2)
        assert world.starts("job-1-1") == [pid]
        world.tell("job-1-1", "succeed")
        await world.reach("job-1", pb.PHASE_SUCCEEDED, generation=2)
        await until(lambda: world.desk.log("job-1") == b"begun\ndone\n")
    assert world.starts("job-1-1") == [pid]


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
        token = (world.stage / "job-1-1.token").read_text()
        await until(lambda: accepted(world, token))
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
