from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from openai import AsyncOpenAI
from tests.integration.engines.reference import Reference
from tests.support.factories.tool_model import make_tool_model
from tests.support.factories.toy_model import make_adapter, make_model
from tests.support.processes.engine import RunningEngine, running_engine
from transformers import AutoModelForCausalLM, AutoTokenizer

from windlass_agent.engines.port import EngineControl
from windlass_agent.engines.registry import engines


@pytest.fixture(scope="session")
def toy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_model(tmp_path_factory.mktemp("model") / "toy")


@pytest.fixture(scope="session")
def adapters(toy: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("adapters")
    return {
        name: make_adapter(toy, folder / name, seed=seed)
        for seed, name in enumerate(["one", "two", "three"])
    }


@pytest.fixture(scope="session")
def reference(toy: Path) -> Reference:
    return Reference(
        AutoModelForCausalLM.from_pretrained(toy).eval(), AutoTokenizer.from_pretrained(toy)
    )


# An engine has 400 MiB, which other tests need once a file of tests has ended.
@pytest.fixture(scope="module")
def engine(toy: Path) -> Iterator[RunningEngine]:
    with running_engine(toy) as running:
        yield running


@pytest.fixture(scope="module")
def narrow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningEngine]:
    """One at a time, one in line, on a socket, and without a chat template."""
    folder = tmp_path_factory.mktemp("narrow")
    model = make_model(folder / "model", template=None)
    endpoint = f"unix://{folder}/s"
    with running_engine(
        model, endpoint=endpoint, max_concurrency=1, flags=("--max-waiting=1",), log=folder / "log"
    ) as running:
        yield running


@pytest.fixture
async def client(engine: RunningEngine) -> AsyncIterator[AsyncOpenAI]:
    async with engine.client() as one:
        yield one


@pytest.fixture
async def narrow_client(narrow: RunningEngine) -> AsyncIterator[AsyncOpenAI]:
    async with narrow.client() as one:
        yield one


@pytest.fixture
async def control(engine: RunningEngine) -> AsyncIterator[EngineControl]:
    """Steers the engine; adapters are gone afterwards."""
    one = engines()["builtin"].control(engine.endpoint)
    yield one
    for adapter in await one.loaded_adapters():
        await one.unload_adapter(adapter)
    await one.close()


@pytest.fixture(scope="module")
def tool_engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningEngine]:
    """A model that has learned when to call a tool."""
    model = make_tool_model(tmp_path_factory.mktemp("model") / "tools")
    with running_engine(model, name="tools") as running:
        yield running
