"""Jobs with real services around it."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.support.services.jobs_plane import JobsPlane, ScriptedAgent, Tenant, running_jobs_plane

SETTINGS = {"jobs": {"agent_lost_seconds": 0.5, "max_attempts": 3, "drain_seconds": 15.0}}


@pytest.fixture
def drain_seconds() -> float:
    """Half the time that a stopped job has to end; a test of its end has less."""
    return SETTINGS["jobs"]["drain_seconds"]


@pytest.fixture
async def plane(
    database_url: str, tmp_path: Path, drain_seconds: float
) -> AsyncIterator[JobsPlane]:
    settings = {"jobs": SETTINGS["jobs"] | {"drain_seconds": drain_seconds}}
    async with running_jobs_plane(database_url, tmp_path / "data", settings) as made:
        yield made


@pytest.fixture
async def tenant(plane: JobsPlane) -> Tenant:
    return await plane.tenant()


@pytest.fixture
async def agent(plane: JobsPlane) -> AsyncIterator[ScriptedAgent]:
    made = await plane.agent()
    yield made
    await made.close()
