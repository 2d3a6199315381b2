"""Engines that cannot start: their tenant reads one sentence, the operator the whole output."""

import sys
from dataclasses import dataclass

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
from windlass_agent.executors.process.engines.driver import EngineDriver
from windlass_agent.machine import Machine
from windlass_agent.memory import default_limits, engine_bound

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
        (VLLM, "ValueError: No available memory for the cache blocks in .../vllm-1."),
        (OUT_OF_MEMORY, "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."),
        (LOGGED, "The model in .../mv-1 has no weights."),
    ],
)
async def test_an_engine_that_cannot_start_says_why_in_a_sentence(says: str, expected: str) -> None:
    with reachable_folder() as folder, capture_logs() as logs:
        (folder / "s").mkdir(mode=0o700)
        driver = EngineDriver(
            data=folder,
            models=ModelCache(folder / "models"),
            sockets=folder / "s",
            places=Allocator(Machine(devices=(), cpus=2, memory_bytes=2**33)).places(ENGINE, 4),
            share=ResourceRequest(),
            drain_seconds=60.0,
            engines={"builtin": BrokenEngine(says=says)},
            changed=lambda: None,
            stop_on_close=True,
            confinement=confinement("off"),
        )
        (folder / "models" / "mv-1").mkdir(parents=True)
        await driver.apply(
            pb.Workload(
                id="eng-1",
                generation=1,
                desired=pb.DESIRED_STATE_RUNNING,
                engine=pb.EngineWorkload(engine="builtin", model="m", model_version_id="mv-1"),
            )
        )
        await until(lambda: driver.statuses()[0].phase == pb.PHASE_FAILED)
        record = msgspec.json.decode(next(folder.rglob("eng-1.json")).read_bytes())
        # Nobody gave engines a share: one that is so small has its part of the machine alone.
        assert record["allotment"]["memory_bound"] == engine_bound(0, 4) < default_limits().memory
        assert driver.statuses()[0].message == f"The engine ended with code 1: {expected}"
        await driver.close()
    (logged,) = [entry for entry in logs if entry["event"] == "engine_ended"]
    assert (logged["engine"], logged["output"].strip()) == ("eng-1", says.strip())
