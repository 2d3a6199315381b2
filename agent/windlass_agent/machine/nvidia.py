"""NVIDIA's GPUs, as nvidia-smi and the driver's files tell of them."""

import contextlib
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path

from windlass_agent.machine.devices import MAX_DEVICES, NVIDIA, Device

_COMMAND = (
    "nvidia-smi",
    "--query-gpu=index,uuid,name,memory.total",
    "--format=csv,noheader,nounits",
)
_SECONDS = 60
_UUID = re.compile(r"GPU-[0-9A-Fa-f-]{1,64}")
# A folder of each GPU that the kernel's driver has.
DRIVER = Path("/proc/driver/nvidia/gpus")


def devices() -> tuple[Device, ...]:
    """The GPUs of this machine, by index; none where nvidia-smi does not answer."""
    try:
        done = subprocess.run(
            _COMMAND,
            check=True,
            capture_output=True,
            text=True,
            errors="replace",
            stdin=subprocess.DEVNULL,
            timeout=_SECONDS,
        )
    except (OSError, subprocess.SubprocessError):
        return ()
    return parsed(done.stdout, minors(DRIVER))


def parsed(said: str, numbers: Mapping[str, int]) -> tuple[Device, ...]:
    """The GPUs of nvidia-smi's answer; `numbers` are those of their device files, by UUID."""
    found = {}
    for line in said.splitlines():
        words = [word.strip() for word in line.split(",")]
        if len(words) < 4 or not _UUID.fullmatch(words[1]):
            continue
        # What shares its memory with the processors says `[N/A]`.
        memory = int(words[-1]) if re.fullmatch(r"[0-9]{1,9}", words[-1]) else 0
        number = numbers.get(words[1])
        found[words[1]] = Device(
            id=words[1],
            vendor=NVIDIA,
            product=", ".join(words[2:-1])[:100],
            memory_bytes=memory * 2**20,
            nodes=None if number is None else (f"/dev/nvidia{number}",),
        )
    return tuple(found.values())[:MAX_DEVICES]


def minors(driver: Path) -> dict[str, int]:
    """The numbers of device files by UUID: an index is not always the same."""
    found = {}
    for path in sorted(driver.glob("*/information")):
        with contextlib.suppress(OSError, ValueError):
            lines = (line.partition(":") for line in path.read_text().splitlines())
            said = {name.strip(): value.strip() for name, _, value in lines}
            if "GPU UUID" in said and "Device Minor" in said:
                found[said["GPU UUID"]] = int(said["Device Minor"])
    return found
