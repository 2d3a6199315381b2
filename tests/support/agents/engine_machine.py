"""A machine whose agent keeps engines, without a control plane."""

from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import psutil
from tests.support.agents.file_store import Store, file_store, files
from tests.support.factories.toy_model import make_adapter, make_draft, make_model
from tests.support.processes.engine import RunningEngine
from tests.support.waiting import until

from windlass.api.clusters.v1 import clusters_pb2 as pb
from windlass.confinement import confinement
from windlass_agent.download import ModelCache
from windlass_agent.engines.port import EngineKind
from windlass_agent.engines.registry import engines
from windlass_agent.executors.process.allocator import ENGINE, Allocator
from windlass_agent.executors.process.allotment import ResourceRequest
from windlass_agent.executors.process.engines.driver import EngineDriver
from windlass_agent.machine import Device
from windlass_agent.machine import Machine as Hardware

# vLLM imports for a minute on a machine that is at rest.
START_SECONDS = 600.0
_PROGRAMS = ("engines.builtin", "engines.llamacpp", "engines.sglang", "vllm.entrypoints")


@contextmanager
def model_store(root: Path, *, hidden: int = 64, host: str = "127.0.0.1") -> Iterator[Store]:
    """Serves a base model `mv-toy`, its adapters `mv-a` and `mv-b`, and `mv-draft`, which guesses
    for it, at this machine's `host`.
    """
    base = make_model(root / "mv-toy", hidden=hidden)
    make_draft(base, root / "mv-draft")
    make_adapter(base, root / "mv-a", seed=1)
    make_adapter(base, root / "mv-b", seed=2)
    with file_store(root, host=host) as made:
        yield made


def workload(
    store: Store,
    *adapters: str,
    generation: int = 1,
    identifier: str = "eng-1",
    desired: Any = pb.DESIRED_STATE_RUNNING,
    kind: str = "builtin",
    arguments: pb.EngineArguments | None = None,
    nodes: int = 0,
    memory_bytes: int = 0,
    sleeps: bool = False,
    asleep: bool = False,
) -> pb.Workload:
    """An engine of `mv-toy` with some of its adapters, and a draft where its arguments name one."""
    draft = "mv-draft" if arguments is not None and arguments.draft_model else ""
    return pb.Workload(
        id=identifier,
        kind=pb.WORKLOAD_KIND_LONG_RUNNING,
        owner="inference",
        generation=generation,
        desired=desired,
        engine=pb.EngineWorkload(
            engine=kind,
            nodes=nodes,
            memory_bytes=memory_bytes,
            sleeps=sleeps,
            asleep=asleep,
            arguments=arguments,
            model="toy",
            model_version_id="mv-toy",
            model_files=files(store, "mv-toy"),
            adapters=[
                pb.AdapterSpec(id=f"ft:{name}", version_id=name, files=files(store, name))
                for name in adapters
            ],
            max_adapters=2,
            draft_version_id=draft,
            draft_files=files(store, draft) if draft else (),
        ),
    )


class Machine:
    """A driver, and what it says."""

    def __init__(
        self,
        folder: Path,
        *,
        slots: int = 2,
        cpus: int = 4,
        stop_on_close: bool = True,
        kinds: Mapping[str, EngineKind] | None = None,
        gpus: tuple[str, ...] = ("GPU-a",),
    ):
        self.changes = 0
        # What it said of its engines at each change.
        self.said: list[pb.WorkloadStatus] = []
        self.folder = folder
        self.kinds = kinds or engines()
        sockets = folder / "s"
        sockets.mkdir(exist_ok=True, mode=0o700)
        self.allocator = Allocator(
            Hardware(devices=tuple(Device(id=gpu) for gpu in gpus), cpus=cpus, memory_bytes=2**33)
        )
        self.driver = EngineDriver(
            data=folder,
            models=ModelCache(folder / "models"),
            sockets=sockets,
            places=self.allocator.places(ENGINE, slots),
            share=ResourceRequest(gpus=min(1, len(gpus)), cpus=1),
            drain_seconds=60.0,
            engines=self.kinds,
            changed=self._changed,
            stop_on_close=stop_on_close,
            confinement=confinement("preferred"),
        )

    def _changed(self) -> None:
        self.changes += 1
        self.said.extend(self.driver.statuses())

    def status(self, identifier: str = "eng-1") -> pb.WorkloadStatus | None:
        found = [one for one in self.driver.statuses() if one.workload_id == identifier]
        return found[0] if found else None

    async def reaches(self, phase: Any, *, generation: int = 1, loaded: int = 0) -> Any:
        def there() -> pb.WorkloadStatus | None:
            status = self.status()
            assert status is not None
            good = sum(1 for adapter in status.adapters if not adapter.error)
            fits = (status.phase, status.generation, good) == (phase, generation, loaded)
            return status if fits else None

        try:
            return await until(there, START_SECONDS)
        except AssertionError:
            raise AssertionError(f"stands at {self.status()}") from None

    def processes(self) -> list[psutil.Process]:
        """Engines of this machine that live, without the programs that build their walls."""
        found = []
        for process in psutil.process_iter(["cmdline"]):
            command = process.info["cmdline"] or [""]
            line = " ".join(command)
            ours = str(self.folder) in line and any(name in line for name in _PROGRAMS)
            if ours and Path(command[0]).name.startswith("python"):
                found.append(process)
        return found


@asynccontextmanager
async def machine(folder: Path, **options: Any) -> AsyncIterator[Machine]:
    made = Machine(folder, **options)
    await made.driver.adopt()
    try:
        yield made
    finally:
        await made.driver.close()


async def say(status: pb.WorkloadStatus, model: str) -> str:
    engine = RunningEngine(Path(), "toy", status.endpoint, 0, 0.0)
    async with engine.client() as client:
        answer = await client.completions.create(
            model=model, prompt="the quick", max_tokens=8, temperature=0
        )
    return answer.choices[0].text
