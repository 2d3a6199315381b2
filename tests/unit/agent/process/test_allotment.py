"""Environment and limits of a workload's share."""

from pathlib import Path

import msgspec
import pytest

from windlass_agent import memory
from windlass_agent.executors.process.allotment import Allotment
from windlass_agent.executors.process.jobs.records import AttemptRecord
from windlass_agent.machine import Device
from windlass_agent.memory import MEMORY_FOR_WEIGHTS, engine_bound

NVIDIA = tuple(Device(id=f"GPU-{n}", nodes=(f"/dev/nvidia{n}",)) for n in (2, 3))
AMD = tuple(Device(id=f"GPU-{n}", vendor="amd", nodes=(f"/dev/dri/renderD12{n}",)) for n in (8, 9))


@pytest.mark.parametrize(
    ("devices", "said"),
    [
        ((), ("", "-1", "-1")),
        (NVIDIA, ("GPU-2,GPU-3", None, None)),
        (AMD, ("0,1", "GPU-8,GPU-9", "0,1")),
    ],
)
def test_gpus_are_told_by_each_vendors_variable(
    devices: tuple[Device, ...], said: tuple[str | None, ...]
) -> None:
    found = Allotment(devices=devices).environment()
    names = ("CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES")
    assert tuple(found.get(name) for name in names) == said


@pytest.mark.parametrize(("cpus", "processes", "threads"), [(8, 2, "4"), (1, 4, "1"), (0, 1, None)])
def test_threads_are_no_more_than_the_cpus(cpus: int, processes: int, threads: str | None) -> None:
    assert Allotment(cpus=cpus).environment(processes).get("OMP_NUM_THREADS") == threads


def test_device_files_are_those_of_its_gpus_or_unknown() -> None:
    assert Allotment().nodes() == ()
    assert Allotment(devices=NVIDIA).nodes() == (Path("/dev/nvidia2"), Path("/dev/nvidia3"))
    assert Allotment(devices=(*NVIDIA, Device(id="MIG-1"))).nodes() is None


def test_a_record_keeps_it_and_one_of_before_has_none() -> None:
    allotment = Allotment(devices=NVIDIA, cpus=2, processors=(1, 5), memory_bytes=2**30)
    record = AttemptRecord(workload=b"", token="t", allotment=allotment)
    again = msgspec.json.decode(msgspec.json.encode(record), type=AttemptRecord)
    assert again.allotment == allotment
    before = msgspec.json.decode(b'{"workload": "", "token": "t"}', type=AttemptRecord)
    assert before.allotment == Allotment()
    assert Allotment(memory_bytes=2**30).limits().memory == 2**30
    assert Allotment().limits().memory >= 2**30
    assert Allotment(memory_bound=2**29).limits().memory == 2**29
    assert Allotment(memory_bytes=2**30, memory_bound=2**29).limits().memory == 2**30


@pytest.mark.parametrize(
    ("machine", "weights", "bound"),
    [
        # A quarter of what engines may use together, for whatever claims to be small.
        (64, 1, 64 * 0.9 / 4),
        # What the weights need, where that is more.
        (64, 8, 32),
        (8, 0, 8 * 0.9 / 4),
        # Never all of the machine.
        (64, 40, 64 * 0.9),
        (2, 1, 2 * 0.9),
    ],
)
def test_engines_that_nobody_gave_a_share_leave_each_other_some(
    monkeypatch: pytest.MonkeyPatch, machine: int, weights: int, bound: float
) -> None:
    monkeypatch.setattr(memory, "memory_limit", lambda: machine * 2**30)
    assert engine_bound(MEMORY_FOR_WEIGHTS * weights * 2**30, 4) == int(bound * 2**30)
