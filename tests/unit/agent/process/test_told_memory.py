"""Memory of devices that a machine tells, from which the planner knows what fits."""

from pathlib import Path
from typing import Any, cast

import pytest

from windlass_agent.engines.registry import EnginePrograms
from windlass_agent.executors.process.allotment import ResourceRequest
from windlass_agent.executors.process.assembly import process_executor
from windlass_agent.machine import Machine
from windlass_agent.machine.devices import Device


@pytest.mark.parametrize(
    ("programs", "memory"),
    [
        (EnginePrograms(vllm_flags=("--seed=7",)), 2**34),
        (EnginePrograms(vllm_flags=("--seed=7", "--quantization=fp8")), 0),
        (EnginePrograms(sglang_flags=("--cpu-offload-gb=8",)), 0),
    ],
)
async def test_memory_is_not_told_where_the_operator_has_weights_take_less(
    tmp_path: Path, programs: EnginePrograms, memory: int
) -> None:
    devices = (Device(id="GPU-1", product="L4", memory_bytes=2**34),)
    executor = process_executor(
        data=tmp_path,
        control=cast(Any, None),
        changed=lambda: None,
        machine=Machine(devices=devices, cpus=2, memory_bytes=2**33),
        slots=1,
        engine_slots=1,
        engine_share=ResourceRequest(),
        drain_seconds=1.0,
        stop_on_close=True,
        programs=programs,
        confinement="off",
    )
    (told,) = executor.capacity().devices
    assert (told.product, told.memory_bytes) == ("L4", memory)
