"""Fixtures of the integration tests."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.integration.runner_cases import Case
from tests.servers.runner_agent import RunnerAgent

from windlass.demo.tiny_model import make_tiny_model


@pytest.fixture(scope="session")
def tiny_model(request: pytest.FixtureRequest) -> Path:
    """The demo's base model; made once, and kept between runs."""
    assert request.config.cache is not None
    return make_tiny_model(request.config.cache.mkdir("tiny_model") / "base")


@pytest.fixture
async def case(tmp_path: Path, tiny_model: Path) -> AsyncIterator[Case]:
    """A job of the test's own."""
    agent = RunnerAgent(tmp_path / "agent")
    await agent.start()
    case = Case(tmp_path, agent, tiny_model)
    try:
        yield case
    finally:
        await case.close()
        await agent.stop()
