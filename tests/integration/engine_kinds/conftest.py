"""One engine of each kind, kept by an agent's driver, that the tests of a module share.

vLLM is its build for CPUs, which serves like the one for GPUs; its start takes most of a minute.
Asked to sleep, that one pauses by its own routes and keeps its memory (`VllmOnCpus`).
SGLang is its wheel without a model (`tests/support/environments/sglang`): it runs on GPUs alone.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

import pytest
import pytest_asyncio
from tests.support.agents.engine_machine import Machine, machine, model_store, workload
from tests.support.agents.file_store import Store
from tests.support.environments.llama_server import llama_server
from tests.support.environments.postgres import reachable_folder
from tests.support.environments.sglang.env import sglang_python
from tests.support.environments.vllm_env import turn, vllm_python
from tests.support.waiting import until

from windlass.api.clusters.v1 import clusters_pb2 as pb
from windlass.engine_arguments import EngineArguments, to_message
from windlass_agent.engines.registry import EnginePrograms, engines
from windlass_agent.engines.vllm_engine import VllmEngine

# One at once, so that a request that goes on keeps the next one waiting.
ARGUMENTS = {
    "builtin": EngineArguments(context_length=384, max_concurrency=1, dtype="float32"),
    "llamacpp": EngineArguments(context_length=384, max_concurrency=1, draft_model="small"),
    "sglang": EngineArguments(context_length=384, max_concurrency=1),
    "vllm": EngineArguments(
        context_length=384,
        max_concurrency=1,
        dtype="float32",
        eager=True,
        kv_cache_bytes=2**28,
        max_adapter_rank=16,
        # Several tokens of a step are several in one chunk.
        lookup_tokens=3,
    ),
}


# Those that sleep in the tests, all that can.
SLEEPERS = ("builtin", "llamacpp", "vllm")


class VllmOnCpus(VllmEngine):
    """vLLM that is taken for one that can sleep, though it lacks a GPU to give memory back of."""

    def sleeps(self, gpus: int) -> bool:
        return True


@dataclass
class Kept:
    """An engine that runs, and the machine that keeps it."""

    kind: str
    host: Machine
    store: Store
    generation: int = 1

    def workload(self, *adapters: str, asleep: bool = False) -> pb.Workload:
        """The next wish for the engine."""
        self.generation += 1
        return workload(
            self.store,
            *adapters,
            kind=self.kind,
            arguments=to_message(ARGUMENTS[self.kind]),
            generation=self.generation,
            sleeps=self.kind in SLEEPERS,
            asleep=asleep,
        )

    async def take_over(self) -> None:
        """Begins another life of the machine's agent; the one before ends no engine."""
        first = self.host
        await first.driver.close()
        self.host = Machine(first.folder, kinds=first.kinds, gpus=(), stop_on_close=False)
        await self.host.driver.adopt()

    async def loaded(self, *adapters: str) -> pb.WorkloadStatus:
        """Returns the status once the engine has these adapters and no others."""
        await self.host.driver.apply(self.workload(*adapters))
        status: pb.WorkloadStatus = await self.host.reaches(
            pb.PHASE_RUNNING, generation=self.generation, loaded=len(adapters)
        )
        return status

    def versions(self) -> set[str]:
        """Versions of the adapters that it says to answer as."""
        status = self.host.status()
        return {one.version_id for one in status.adapters} if status else set()

    async def asleep(self) -> None:
        """Returns once the engine sleeps as it was told to."""

        def sleeps() -> bool:
            status = self.host.status()
            assert status is not None
            return (status.phase, status.reason) == (pb.PHASE_SLEEPING, "")

        await until(sleeps, 60)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    """A base model whose heads vLLM has kernels for, and two adapters."""
    with model_store(tmp_path_factory.mktemp("store"), hidden=128) as made:
        yield made


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    """Folder of a machine; the path of a socket must be short."""
    with reachable_folder() as made:
        yield made


@pytest.fixture(scope="module", params=sorted(ARGUMENTS))
def kind(request: pytest.FixtureRequest) -> str:
    """Kind of engine."""
    return str(request.param)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def kept(kind: str, store: Store, folder: Path) -> AsyncIterator[Kept]:
    """An engine that answers, with the adapter `mv-a`."""
    programs = EnginePrograms(
        vllm_python=await asyncio.to_thread(vllm_python) if kind == "vllm" else None,
        sglang_python=await asyncio.to_thread(sglang_python) if kind == "sglang" else None,
        llama_server=await asyncio.to_thread(llama_server) if kind == "llamacpp" else None,
    )
    kinds = engines(programs)
    if programs.vllm_python is not None:
        kinds["vllm"] = VllmOnCpus(programs.vllm_python)
    engine = Kept(kind, Machine(folder, kinds=kinds, gpus=(), stop_on_close=False), store)
    with turn() if kind == "vllm" else nullcontext():
        try:
            await engine.loaded("mv-a")
            yield engine
        finally:
            await engine.host.driver.close()
            async with machine(folder, kinds=kinds, gpus=()):
                # Whatever still runs ends with its last agent.
                pass


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leaves the engine that is slow to start to the long run; its page has a real one in each."""
    for item in items:
        if item.path.name == "test_contract.py" and "[vllm" in item.name:
            item.add_marker(pytest.mark.long)
