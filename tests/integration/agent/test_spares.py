"""Spares: runners that wait for an attempt, as the agent keeps, gives away and ends them.

The runners are stages; that a real one trains is in test_spare_trainers.py.
"""

import signal
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import psutil
import pytest
from tests.support.agents.staged_agent import World, lives, staged_world
from tests.support.waiting import until

from windlass.api.clusters.v1 import clusters_pb2 as pb
from windlass.core.killpoints import VARIABLE
from windlass_agent.executors.process.jobs import spares


@pytest.fixture
async def world(
    database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[World]:
    # Other tests may leave this machine little memory.
    monkeypatch.setattr(spares, "PRESSURE_BYTES", 0)
    async with staged_world(database_url, tmp_path) as made:
        yield made


def waiting(world: World) -> list[psutil.Process]:
    """The spares that no attempt has taken."""
    taken = {str(link.resolve()) for link in (world.data / "workloads").iterdir()}
    found = []
    for process in psutil.process_iter(["cmdline"]):
        words = process.info["cmdline"] or []
        folders = [word for word in words if word.startswith(str(world.data / "spares"))]
        if folders and folders[0] not in taken:
            found.append(process)
    return found


async def run(world: World, name: str, framework: str = "trl") -> int:
    """Runs a job to its success; the process of its runner."""
    await world.put(name, framework=framework)
    pid = await world.started(f"{name}-1")
    world.tell(f"{name}-1", "succeed")
    await world.reach(name, pb.PHASE_SUCCEEDED)
    return pid


async def spare(world: World) -> psutil.Process:
    """The one that waits, once there is one."""
    (found,) = await until(partial(waiting, world), holds=lambda found: len(found) == 1)
    return found


async def test_a_spare_serves_one_attempt(world: World) -> None:
    async with world.agent(spare_trainers=1):
        assert not waiting(world)
        await run(world, "job-0")
        first = await spare(world)
        assert await run(world, "job-1") == first.pid
        await until(lambda: world.desk.log("job-1") == b"begun\ndone\n")
        second = await spare(world)
        assert second.pid != first.pid
        await until(lambda: not lives(first.pid))
        assert await run(world, "job-2") == second.pid
        # What they worked in is gone with them, but for what the next one waits in.
        await until(lambda: not list((world.data / "workloads").glob("*/")))
        await until(lambda: len(list((world.data / "spares").iterdir())) == 1)


async def test_none_is_made_where_none_is_wanted(world: World) -> None:
    async with world.agent(spare_trainers=0):
        await run(world, "job-0")
        await run(world, "job-1")
    assert not (world.data / "spares").exists()


async def test_a_job_of_another_framework_leaves_it_alone(world: World) -> None:
    async with world.agent(spare_trainers=1):
        await run(world, "job-0")
        kept = await spare(world)
        assert await run(world, "job-1", framework="torchtune") != kept.pid
        assert waiting(world) == [kept]


async def test_a_spare_that_died_is_replaced_by_a_start(world: World) -> None:
    async with world.agent(spare_trainers=1):
        await run(world, "job-0")
        dead = await spare(world)
        dead.kill()
        # One that dies with a job at hand is that job's failure.
        await until(lambda: not lives(dead.pid))
        assert await run(world, "job-1") != dead.pid
        assert (await spare(world)).pid != dead.pid
    assert [len(world.starts(f"job-{n}-1")) for n in (0, 1)] == [1, 1]


async def test_an_agent_that_stops_ends_its_spares(world: World) -> None:
    async with world.agent(spare_trainers=1):
        await run(world, "job-0")
        kept = await spare(world)
    assert not lives(kept.pid)
    assert not list((world.data / "spares").iterdir())


async def test_a_spare_that_nobody_takes_is_ended(world: World) -> None:
    """The next job starts anew, and has one kept again."""
    async with world.agent(spare_trainers=1, spare_idle_seconds=2.0):
        await run(world, "job-0")
        first = await spare(world)
        await until(lambda: not lives(first.pid))
        await until(lambda: not list((world.data / "spares").iterdir()))
        assert await run(world, "job-1") != first.pid
        await spare(world)


async def test_a_spare_gives_its_memory_to_what_needs_it(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spares, "LOOK_SECONDS", 0.1)
    async with world.agent(spare_trainers=1):
        await run(world, "job-0")
        kept = await spare(world)
        monkeypatch.setattr(spares, "PRESSURE_BYTES", 2**60)
        await until(lambda: not lives(kept.pid))


async def test_a_spare_of_libraries_that_were_replaced_is_not_taken(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with world.agent(spare_trainers=1):
        await run(world, "job-0")
        old = await spare(world)
        monkeypatch.setattr(spares, "libraries_version", lambda: 0)
        assert await run(world, "job-1") != old.pid
        await until(lambda: not lives(old.pid))


@pytest.mark.faults
async def test_no_spare_outlives_a_killed_agent(world: World) -> None:
    with world.agent_process(spares=1) as start:
        agent = start()
        await run(world, "job-0")
        kept = await spare(world)
        agent.kill()
        await until(lambda: not lives(kept.pid))
        agent.wait()
        start()
        await run(world, "job-1")
        # Its folder is cleared by the next life, which has a spare of its own.
        await spare(world)
        assert len(list((world.data / "spares").iterdir())) == 1


@pytest.mark.faults
async def test_a_killed_agent_adopts_a_runner_that_was_a_spare(world: World) -> None:
    with world.agent_process(spares=1) as start:
        agent = start()
        await run(world, "job-0")
        kept = await spare(world)
        await world.put("job-1", framework="trl")
        assert await world.started("job-1-1") == kept.pid
        await world.reach("job-1", pb.PHASE_RUNNING)
        agent.kill()
        agent.wait()
        start()
        world.tell("job-1-1", "succeed")
        await world.reach("job-1", pb.PHASE_SUCCEEDED)
        await until(lambda: world.desk.log("job-1") == b"begun\ndone\n")
        await until(lambda: not (world.data / "workloads" / "job-1-1").exists())
    assert len(world.starts("job-1-1")) == 1


@pytest.mark.faults
@pytest.mark.parametrize(
    ("point", "same"), [("agent.recorded", False), ("agent.runner_started", True)]
)
async def test_an_agent_killed_at_the_hand_over_runs_the_attempt_once(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, point: str, same: bool
) -> None:
    """Before the token is written the spare ends with its agent; after it, it is the runner."""
    points = tmp_path / "points"
    points.mkdir()
    monkeypatch.setenv(VARIABLE, str(points))
    with world.agent_process(spares=1) as start:
        agent = start()
        await run(world, "job-0")
        kept = await spare(world)
        (points / point).touch()
        await world.put("job-1", framework="trl")
        await until(lambda: agent.poll() is not None)
        await until(lambda: same or not lives(kept.pid))
        start()
        assert (await world.started("job-1-1") == kept.pid) is same
        world.tell("job-1-1", "succeed")
        await world.reach("job-1", pb.PHASE_SUCCEEDED)
    assert len(world.starts("job-1-1")) == 1


async def test_an_attempt_that_was_a_spare_is_stopped_as_any(world: World) -> None:
    async with world.agent(spare_trainers=1):
        await run(world, "job-0")
        await spare(world)
        await world.put("job-1", framework="trl")
        await world.started("job-1-1")
        await world.put("job-1", framework="trl", generation=2, desired=pb.DESIRED_STATE_STOPPED)
        await world.reach("job-1", pb.PHASE_STOPPED, generation=2)
        assert (world.stage / "job-1-1.asked").exists()
        taken = await spare(world)
        await world.put("job-2", framework="trl")
        assert await world.started("job-2-1") == taken.pid
        taken.send_signal(signal.SIGKILL)
        assert (await world.reach("job-2", pb.PHASE_FAILED)).reason == "ProcessKilled"
