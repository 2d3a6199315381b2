"""One engine of each kind that samples, started once for a module."""

import os
import subprocess
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
import torch
from tests.integration.samplers.publishing import PublishedModel
from tests.support.environments.vllm_env import turn, vllm_python
from tests.support.factories.toy_model import make_adapter, make_model
from tests.support.processes.engine import RunningEngine, running_engine
from tests.support.waiting import wait_until
from transformers import AutoModelForCausalLM

from windlass.engine_arguments import EngineArguments
from windlass.weight_versions import FolderMedium
from windlass_agent.engines.port import EngineControl, EngineKind, EngineSpec
from windlass_agent.engines.registry import EnginePrograms, engines

START_SECONDS = 600.0


@pytest.fixture(scope="session")
def toy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model whose heads vLLM has kernels for."""
    return make_model(tmp_path_factory.mktemp("model") / "toy", hidden=128)


@pytest.fixture(scope="session")
def adapter(toy: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_adapter(toy, tmp_path_factory.mktemp("adapters") / "one", seed=1)


@pytest.fixture(scope="module", params=["builtin", "vllm"])
def kind(request: pytest.FixtureRequest) -> EngineKind:
    name = str(request.param)
    return engines(EnginePrograms(vllm_python=vllm_python() if name == "vllm" else None))[name]


@pytest.fixture(scope="module")
def engine(kind: EngineKind, toy: Path) -> Iterator[RunningEngine]:
    if kind.name == "builtin":
        with running_engine(toy) as running:
            yield running
    else:
        with turn(), running_vllm(kind, toy) as running:
            yield running


@pytest.fixture
async def control(kind: EngineKind, engine: RunningEngine) -> AsyncIterator[EngineControl]:
    """Steers the engine; adapters are gone afterwards."""
    one = kind.control(engine.endpoint)
    yield one
    for name in await one.loaded_adapters():
        await one.unload_adapter(name)
    await one.close()


@pytest.fixture(scope="module")
def model(
    engine: RunningEngine, toy: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[PublishedModel]:
    """What the engine answers by, trained elsewhere and published on a volume."""
    root = tmp_path_factory.mktemp("volume")
    network = AutoModelForCausalLM.from_pretrained(toy, dtype=torch.float32).eval()
    with tempfile.TemporaryDirectory() as scratch:
        made = PublishedModel(network, FolderMedium(root, Path(scratch)), root, Path(scratch))
        yield made
        made.publisher.close()


@contextmanager
def running_vllm(kind: EngineKind, model: Path) -> Iterator[RunningEngine]:
    """Starts vLLM as the agent does, with the routes that steer it."""
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        spec = EngineSpec(
            model_dir=model,
            served_name="toy",
            endpoint=f"unix://{scratch}/s",
            max_adapters=2,
            arguments=EngineArguments(
                context_length=512, dtype="float32", eager=True, kv_cache_bytes=2**27,
                max_concurrency=8, max_adapter_rank=16,
            ),
            sleeps=True,
            scratch=scratch,
        )  # fmt: skip
        variables = {**os.environ, **kind.environment(spec), "HF_HUB_OFFLINE": "1"}
        with (scratch / "log").open("wb") as log:
            process = subprocess.Popen(
                kind.command(spec), env=variables, stdout=log, stderr=log, start_new_session=True
            )
        running = RunningEngine(model, "toy", spec.endpoint, process.pid, 0.0)
        try:
            _wait(running, process, scratch / "log")
            yield running
        finally:
            print((scratch / "log").read_text(errors="replace")[-100_000:])
            process.terminate()
            process.wait(60)


def _wait(running: RunningEngine, process: "subprocess.Popen[bytes]", log: Path) -> None:
    def answers() -> bool:
        assert process.poll() is None, log.read_text(errors="replace")[-3000:]
        try:
            with running.http() as http:
                return http.get("/health").is_success
        except httpx.TransportError:
            return False

    wait_until(answers, seconds=START_SECONDS)
