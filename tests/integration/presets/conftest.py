"""Engines of the kinds that serve what presets are for."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest
from tests.support.environments.vllm_env import turn, vllm_python
from tests.support.processes.engine import RunningEngine, running_engine

from windlass.engine_arguments import EngineArguments
from windlass_agent.engines.vllm_engine import VllmEngine

# Starts an engine that answers for a folder, for a task.
Serve = Callable[..., AbstractContextManager[RunningEngine]]
START_SECONDS = 600.0


@contextmanager
def by_builtin(model: Path, task: str = "") -> Iterator[RunningEngine]:
    with running_engine(model, max_adapters=1) as running:
        yield running


@contextmanager
def by_vllm(model: Path, task: str = "") -> Iterator[RunningEngine]:
    arguments = EngineArguments.model_validate(
        {"dtype": "float32", "eager": True, "kv_cache_bytes": 2**28, "max_concurrency": 8}
        | ({"task": task} if task else {"max_adapter_rank": 16})
    )
    engine = VllmEngine(vllm_python())
    with (
        turn(),
        running_engine(
            model, max_adapters=1, kind=engine, arguments=arguments, seconds=START_SECONDS
        ) as running,
    ):
        yield running


SERVES: dict[str, Serve] = {"builtin": by_builtin, "vllm": by_vllm}


@pytest.fixture(params=SERVES)
def kind(request: pytest.FixtureRequest) -> str:
    """Kind of engine."""
    return str(request.param)
