"""Fixtures of the integration tests."""

import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from tests.integration.runner.cases import Case
from tests.support.agents.runner_agent import RunnerAgent
from tests.support.environments import made_once
from tests.support.processes.forked import TORCHRUN, ForkServer

from windlass.backends.trl.config import ENTRY_MODULE


@pytest.fixture(scope="session")
def tiny_model() -> Path:
    """The demo's base model; made once, and kept between runs."""
    return made_once.tiny_model()


@pytest.fixture(scope="session")
def trl_forks() -> Iterator[ForkServer]:
    """Where TRL's trainers are forked, with what a spare imports."""
    scripts = ("sft", "dpo", "kto", "reward", "distillation", "grpo", "rloo")
    modules = [f"trl.scripts.{name}" for name in scripts]
    server = ForkServer(Path(sys.executable), [ENTRY_MODULE, TORCHRUN, *modules])
    yield server
    server.stop()


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
