"""Fixtures of the integration tests."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.integration.runner.cases import Case
from tests.support.agents.runner_agent import RunnerAgent
from tests.support.environments import made_once
from tests.support.processes import warm
from tests.support.processes.forked import ForkServer


@pytest.fixture(scope="session")
def tiny_model() -> Path:
    """The demo's base model; made once, and kept between runs."""
    return made_once.tiny_model()


@pytest.fixture(scope="session")
def trl_forks() -> ForkServer:
    """Where TRL's trainers are forked, with what a spare imports."""
    return warm.LIBRARIES


@pytest.fixture
async def case(tmp_path: Path, tiny_model: Path, trl_forks: ForkServer) -> AsyncIterator[Case]:
    """A job of the test's own."""
    agent = RunnerAgent(tmp_path / "agent")
    await agent.start()
    case = Case(tmp_path, agent, tiny_model, trl_forks)
    try:
        yield case
    finally:
        await case.close()
        await agent.stop()
