"""An agent whose line to the control plane is cut: it lets go of its jobs, and reports later."""

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
from tests.support.agents.staged_agent import World, lives, staged_world
from tests.support.processes.cut_line import CutLine, cut_line
from tests.support.waiting import until

from windlass.api.clusters.v1 import clusters_pb2 as pb
from windlass.core.config import Settings

pytestmark = pytest.mark.faults
RUNNING = pb.DESIRED_STATE_RUNNING
SUSPEND_SECONDS = 4


@pytest.fixture
async def cut_off(database_url: str, tmp_path: Path) -> AsyncIterator[tuple[World, CutLine]]:
    """A world whose agents reach the control plane by a line that can be cut."""
    settings = Settings()
    settings.agents.process_suspend_seconds = SUSPEND_SECONDS
    async with staged_world(database_url, tmp_path, settings) as world:
        with cut_line(world.plane.socket) as line:
            yield replace(world, address=line.address), line


async def test_a_silent_control_plane_has_its_jobs_stopped_and_told_of_later(
    cut_off: tuple[World, CutLine],
) -> None:
    world, line = cut_off
    async with world.agent(slots=1):
        await world.put("job-1")
        await world.put("job-2")
        pid = await world.started("job-1-1")
        await world.reach("job-1", pb.PHASE_RUNNING)
        await world.reach("job-2", pb.PHASE_PENDING)
        line.cut()
        await until(lambda: not lives(pid))
        assert (world.stage / "job-1-1.asked").exists()
        assert world.statuses["job-1"].phase == pb.PHASE_RUNNING, "nobody could say otherwise"
        line.mend()
        for name in ("job-1", "job-2"):
            await world.reach(name, pb.PHASE_STOPPED)
        # The one that waited never begins, and what is wanted anew does.
        await world.put("job-1", generation=2, attempt=2)
        await world.started("job-1-2")
    assert world.starts("job-1-1") == [pid]
    assert world.starts("job-2-1") == []


async def test_a_job_that_does_not_stop_is_killed_and_not_begun_again(
    cut_off: tuple[World, CutLine],
) -> None:
    world, line = cut_off
    (world.stage / "stubborn").touch()
    async with world.agent(drain_seconds=600.0):
        await world.put("job-1")
        pid = await world.started("job-1-1")
        await world.reach("job-1", pb.PHASE_RUNNING)
        line.cut()
        await until(lambda: not lives(pid))
        assert (world.stage / "job-1-1.asked").exists()
        line.mend()
        await until(lambda: world.statuses["job-1"].phase == pb.PHASE_STOPPED)
    assert world.starts("job-1-1") == [pid]


async def test_an_agent_that_comes_back_without_contact_ends_what_it_adopted(
    cut_off: tuple[World, CutLine],
) -> None:
    world, line = cut_off
    with world.agent_process() as start:
        first = start()
        await world.put("job-1")
        pid = await world.started("job-1-1")
        await world.reach("job-1", pb.PHASE_RUNNING)
        line.cut()
        first.kill()
        first.wait()
        start()
        await until(lambda: not lives(pid))
        line.mend()
        await until(lambda: world.statuses["job-1"].phase == pb.PHASE_STOPPED)
        await world.put("job-1", generation=2, attempt=2, desired=RUNNING)
        await world.started("job-1-2")
    assert world.starts("job-1-1") == [pid]
