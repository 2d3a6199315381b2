"""Use of a machine's GPUs, as nvidia-smi and AMD's driver tell of it."""

import asyncio
import contextlib
import re
from collections.abc import Collection
from pathlib import Path

from windlass.core import telemetry
from windlass_agent.machine.devices import AMD, NVIDIA, Device

log = telemetry.logger("engines")
_COMMAND = ("nvidia-smi", "--query-gpu=uuid,utilization.gpu", "--format=csv,noheader,nounits")
_SECONDS = 20.0
_PERCENT = re.compile(r"\d{1,3}")
RENDERERS = Path("/sys/class/drm")


async def gpu_uses(devices: Collection[Device]) -> dict[Device, float]:
    """Returns the parts of the time, from 0 to 1, that GPUs were busy; without what is not said."""
    said: dict[str, float] = {}
    if any(one.vendor == NVIDIA for one in devices):
        said = parsed(await _nvidia())
    for one in devices:
        if one.vendor == AMD and (found := await asyncio.to_thread(_amd, one)) is not None:
            said[one.id] = found
    return {one: said[one.id] for one in devices if one.id in said}


def parsed(said: str) -> dict[str, float]:
    """The uses of nvidia-smi's answer, by UUID; a GPU in parts (MIG) says `[N/A]`."""
    found = {}
    for line in said.splitlines():
        identifier, _, percent = (word.strip() for word in line.partition(","))
        if (part := _part(percent)) is not None:
            found[identifier] = part
    return found


async def _nvidia() -> str:
    try:
        process = await asyncio.create_subprocess_exec(
            *_COMMAND,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
        )
    except OSError as error:
        log.info("gpu_use_unknown", error=str(error))
        return ""
    try:
        async with asyncio.timeout(_SECONDS):
            out, _ = await process.communicate()
    except TimeoutError:
        log.info("gpu_use_unknown", error="nvidia-smi does not answer")
        return ""
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    return out.decode(errors="replace")


def _amd(device: Device) -> float | None:
    for node in device.nodes or ():
        with contextlib.suppress(OSError, ValueError):
            file = RENDERERS / Path(node).name / "device" / "gpu_busy_percent"
            return _part(file.read_text().strip())
    return None


def _part(percent: str) -> float | None:
    known = _PERCENT.fullmatch(percent) and int(percent) <= 100
    return int(percent) / 100 if known else None
