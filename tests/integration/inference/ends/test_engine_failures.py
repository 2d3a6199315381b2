"""Engines that cannot start: their tenant reads one sentence, the operator the whole output."""

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pytest
from structlog.testing import capture_logs
from tests.support.environments.postgres import reachable_folder
from tests.support.waiting import until

from windlass.api.clusters.v1 import clusters_pb2 as pb
from windlass.confinement import confinement
from windlass_agent.download import ModelCache
from windlass_agent.engines.builtin_engine import BuiltinEngine
from windlass_agent.engines.port import EngineSpec
from windlass_agent.executors.process.allocator import ENGINE, Allocator
from windlass_agent.executors.process.allotment import ResourceRequest
from windlass_agent.executors.process.engines import readiness
from windlass_agent.executors.process.engines.driver import EngineDriver
from windlass_agent.machine import Machine
from windlass_agent.memory import default_limits, engine_bound, in_units

# As vLLM prints it: its core's error in a process of its own, then that of its server.
VLLM = """
(EngineCore_0 pid=7) ERROR 11-23 01:02:03 [core.py:586] Traceback (most recent call last):
(EngineCore_0 pid=7) ERROR 11-23 01:02:03 [core.py:586]   File "/opt/vllm/core.py", line 577
(EngineCore_0 pid=7) ERROR 11-23 01:02:03 [core.py:586] ValueError: No available memory for the \
cache blocks in /dev/shm/vllm-1.
(APIServer pid=5) Traceback (most recent call last):
(APIServer pid=5)   File "/opt/vllm/server.py", line 12, in main
(APIServer pid=5) RuntimeError: Engine core initialization failed. See root cause above. \
Failed core proc(s): {}
"""
OUT_OF_MEMORY = """
Traceback (most recent call last):
  File "/opt/w/builtin/__main__.py", line 30, in main
torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.
"""
ADVICE = (
    f"It had {in_units(engine_bound(0, 4))} of its machine's memory for weights of 0 B. "
    "Lower context_length, "
    "max_concurrency or kv_cache_bytes, or have the operator raise agent.engine_memory_bytes."
)
LOGGED = '{"reason": "The model in /var/lib/w/models/mv-1 has no weights", "event": "x"}'


@dataclass(frozen=True)
class BrokenEngine(BuiltinEngine):
    """An engine that prints what it is told and ends."""

    says: str = ""

    def command(self, spec: EngineSpec) -> list[str]:
        ends = "import sys; sys.exit(print(sys.argv[1]) or 1)"
        return [sys.executable, "-c", ends, self.says, spec.endpoint]


@pytest.mark.parametrize(
    ("says", "expected"),
    [
        (VLLM, "ValueError: No available memory for the cache blocks in .../vllm-1. " + ADVICE),
        (
            OUT_OF_MEMORY,
            "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. " + ADVICE,
        ),
        (LOGGED, "The model in .../mv-1 has no weights."),
    ],
)
async def test_an_engine_that_cannot_start_says_why_in_a_sentence(says: str, expected: str) -> None:
    with reachable_folder() as folder, capture_logs() as logs:
        async with kept(folder, BrokenEngine(says=says)) as driver:
            await until(lambda: driver.statuses()[0].phase == pb.PHASE_FAILED)
            record = msgspec.json.decode(next(folder.rglob("eng-1.json")).read_bytes())
            # Nobody gave engines a share: one that is so small has its part of the machine alone.
            bound = record["allotment"]["memory_bound"]
            assert bound == engine_bound(0, 4) < default_limits().memory
            assert driver.statuses()[0].message == f"The engine ended with code 1: {expected}"
    (logged,) = [entry for entry in logs if entry["event"] == "engine_ended"]
    assert (logged["engine"], logged["output"].strip()) == ("eng-1", says.strip())


@asynccontextmanager
async def kept(folder: Path, engine: BuiltinEngine) -> AsyncIterator[EngineDriver]:
    """A machine that is to keep one engine."""
    (folder / "s").mkdir(mode=0o700)
    (folder / "models" / "mv-1").mkdir(parents=True)
    driver = EngineDriver(
        data=folder,
        models=ModelCache(folder / "models"),
        sockets=folder / "s",
        places=Allocator(Machine(devices=(), cpus=2, memory_bytes=2**33)).places(ENGINE, 4),
        share=ResourceRequest(),
        drain_seconds=60.0,
        engines={"builtin": engine},
        changed=lambda: None,
        stop_on_close=True,
        confinement=confinement("off"),
    )
    await driver.apply(
        pb.Workload(
            id="eng-1",
            generation=1,
            desired=pb.DESIRED_STATE_RUNNING,
            engine=pb.EngineWorkload(engine="builtin", model="m", model_version_id="mv-1"),
        )
    )
    try:
        yield driver
    finally:
        await driver.close()


# Healthy from its first moment, and fails at answers until it is mended by a file.
UNABLE = """
import json, pathlib, sys
from aiohttp import web

async def answer(request):
    if request.path == "/v1/models":
        return web.json_response({"data": [{"id": "m", "max_model_len": 64}]})
    if request.path != "/v1/completions":
        return web.Response(status=200 if request.path == "/health" else 404)
    assert (await request.json())["max_tokens"] == 1
    if pathlib.Path(sys.argv[2]).exists():
        return web.json_response({})
    return web.json_response({"error": {"message": "no kernel image"}}, status=500)

app = web.Application()
app.router.add_route("*", "/{path:.*}", answer)
web.run_app(app, path=sys.argv[1].removeprefix("unix://"), print=None)
"""


@dataclass(frozen=True)
class UnableEngine(BuiltinEngine):
    """An engine that says that it is ready and fails at every request; see UNABLE."""

    mended: Path = Path()

    def command(self, spec: EngineSpec) -> list[str]:
        return [sys.executable, "-c", UNABLE, spec.endpoint, str(self.mended)]


async def test_an_engine_that_is_ready_and_fails_gets_no_request(tmp_path: Path) -> None:
    mended = tmp_path / "mended"
    with reachable_folder() as folder:
        async with kept(folder, UnableEngine(mended=mended)) as driver:
            failing = "It is ready, but fails: no kernel image"
            status = await until(
                lambda: one if (one := driver.statuses()[0]).message == failing else None
            )
            assert (status.phase, status.reason) == (pb.PHASE_STARTING, "NotAnswering")
            assert not status.endpoint
            mended.touch()
            status = await until(lambda: one if (one := driver.statuses()[0]).endpoint else None)
            assert status.phase == pb.PHASE_RUNNING


async def test_an_engine_that_never_answers_fails_in_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Time for it to begin, on a busy machine too, and to fail.
    monkeypatch.setattr(readiness, "START_SECONDS", 12.0)
    with reachable_folder() as folder:
        async with kept(folder, UnableEngine(mended=tmp_path / "never")) as driver:
            await until(lambda: driver.statuses()[0].phase == pb.PHASE_FAILED)
            status = driver.statuses()[0]
            assert status.reason == "StartFailed"
            assert status.message.startswith("The engine did not answer within 0 minutes")
            assert status.message.endswith("fails: no kernel image")
