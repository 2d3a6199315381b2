"""Fixtures of TorchTune's trainers."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.environments.torchtune_env import torchtune_python
from tests.support.processes.forked import TORCHRUN, ForkServer

from windlass.backends.torchtune.config import ENTRY_MODULE


@pytest.fixture(scope="session")
def torchtune_forks() -> Iterator[ForkServer]:
    server = ForkServer(torchtune_python(), [ENTRY_MODULE, TORCHRUN])
    yield server
    server.stop()


@pytest.fixture
def python(torchtune_forks: ForkServer) -> Path:
    """The Python with TorchTune, whose trainers are forks of one that has its libraries."""
    return torchtune_forks.python


@pytest.fixture
def cold_python() -> Path:
    """The Python with TorchTune as it is, for a test of processes."""
    return torchtune_python()
