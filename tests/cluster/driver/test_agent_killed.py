"""The agent is killed again and again while it launches: nothing is lost, nothing doubled."""

import asyncio
import random
from pathlib import Path

import pytest
from tests.cluster.cluster import TestCluster
from tests.cluster.stages.driven import MIB, driven
from tests.support.waiting import until

from windlass.api.clusters.v1 import clusters_pb2 as pb
from windlass_agent.kube.resources import JOBS, PODS

KILLS = 6


@pytest.mark.faults
@pytest.mark.timeout(600)
async def test_an_agent_is_killed_at_any_step_of_a_launch(
    east: TestCluster, database_url: str, tmp_path: Path
) -> None:
    names = [f"ftjob-killed-{number}" for number in range(4)]
    chance = random.Random(7)
    async with driven(east, database_url, tmp_path) as world:
        with world.agent_process() as start:
            for name in names:
                await world.put(name, memory_bytes=64 * MIB)
            for _ in range(KILLS):
                process = start()
                # It is at work once it listens; then each moment is as good as another.
                await until(world.listens, 60)
                await asyncio.sleep(chance.uniform(0, 0.4))
                process.kill()
                process.wait()
            start()
            for name in names:
                await world.reach(name, pb.PHASE_RUNNING)
                await world.logged(name, b"begun\n")
                assert len(await world.objects(JOBS, name)) == 1
                assert len(await world.objects(PODS, name)) == 1
            for name in names:
                await world.put(name, generation=2, desired=pb.DESIRED_STATE_DELETED)
            await world.gone(*names)
