"""Use of a machine's GPUs: what drivers say is read, and asked only for who wants to know."""

import asyncio
from collections.abc import Collection
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.waiting import stays, until

from windlass_agent.executors import gpu_meter
from windlass_agent.executors.gpu_meter import RECENT_SECONDS, DeviceMeter
from windlass_agent.machine import gpu_use
from windlass_agent.machine.devices import AMD, Device
from windlass_agent.machine.gpu_use import gpu_uses, parsed

ONE, TWO = Device(id="GPU-1"), Device(id="GPU-2")


def test_what_nvidia_smi_says_is_read_and_a_gpu_in_parts_says_nothing() -> None:
    said = "GPU-1, 97\nGPU-2, 0\nGPU-3, [N/A]\nGPU-4, 101\nGPU-5\n\n, 5"
    assert parsed(said) == {"GPU-1": 0.97, "GPU-2": 0.0, "": 0.05}


@given(st.text())
def test_whatever_is_said_is_a_part_or_nothing(said: str) -> None:
    assert all(0 <= part <= 1 for part in parsed(said).values())


def program(folder: Path, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program in the place of nvidia-smi, which is not on machines without an NVIDIA GPU."""
    (folder / "nvidia-smi").write_text(f"#!/bin/sh\n{text}\n")
    (folder / "nvidia-smi").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")


async def test_the_driver_is_asked_for_the_devices_that_matter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program(tmp_path, 'echo "GPU-1, 50"; echo "GPU-3, 60"', monkeypatch)
    assert await gpu_uses([ONE, TWO]) == {ONE: 0.5}
    program(tmp_path, "exit 9", monkeypatch)
    assert await gpu_uses([ONE]) == {}
    (tmp_path / "nvidia-smi").unlink()
    assert await gpu_uses([ONE]) == {}


async def test_a_driver_that_hangs_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpu_use, "_SECONDS", 0.05)
    program(tmp_path, "exec sleep 600", monkeypatch)
    assert await gpu_uses([ONE]) == {}


async def test_of_an_amd_gpu_the_drivers_file_says_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpu_use, "RENDERERS", tmp_path)
    device = Device(id="GPU-a", vendor=AMD, nodes=("/dev/dri/renderD128",))
    assert await gpu_uses([device]) == {}
    folder = tmp_path / "renderD128" / "device"
    folder.mkdir(parents=True)
    (folder / "gpu_busy_percent").write_text("42\n")
    assert await gpu_uses([device, Device(id="0", vendor=AMD)]) == {device: 0.42}


async def test_devices_are_measured_while_somebody_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_meter, "MEASURE_SECONDS", 0.01)
    asked: list[set[Device]] = []

    async def measure(devices: Collection[Device]) -> dict[Device, float]:
        asked.append(set(devices))
        return {ONE: 0.2, TWO: 0.6}

    meter = DeviceMeter(measure)
    running = asyncio.create_task(meter.run())
    try:
        assert meter.use([]) is None
        await stays(lambda: not asked, 0.05)
        assert meter.use([ONE]) is None, "nobody has measured"
        await until(lambda: meter.use([ONE]) == 0.2)
        await until(lambda: meter.use([ONE, TWO]) == 0.4)
        assert meter.use([ONE, Device(id="GPU-9")]) is None
        assert asked[0] == {ONE}
        meter._measured_at -= RECENT_SECONDS + 1
        assert meter.use([ONE]) is None, "that was long ago"
    finally:
        running.cancel()
