"""Jobs with real services around it."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.support.services.jobs_plane import JobsPlane, ScriptedAgent, Tenant, running_jobs_plane

SETTINGS = {"jobs": {"agent_lost_seconds": 0.5, "max_attempts": 3, "drain_seconds": 0.5}}


@pytest.fixture
async def plane(database_url: str, tmp_path: Path) -> AsyncIterator[JobsPlane]:
    async with running_jobs_plane(database_url, tmp_path / "data", SETTINGS) as made:
        yield made


@pytest.fixture
async def tenant(plane: JobsPlane) -> Tenant:
    return await plane.tenant()


@pytest.fixture
async def agent(plane: JobsPlane) -> AsyncIterator[ScriptedAgent]:
    made = await plane.agent()
    yield made
    await made.close()
