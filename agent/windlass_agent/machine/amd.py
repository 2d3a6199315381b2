"""AMD's GPUs, as the driver kfd tells of them."""

import contextlib
from pathlib import Path

from windlass_agent.machine.devices import AMD, MAX_DEVICES, Device

TOPOLOGY = Path("/sys/class/kfd/kfd/topology/nodes")
# Kinds of memory banks that are the GPU's own: reached by processors, and not.
_OWN = ("1", "2")


def devices(topology: Path = TOPOLOGY) -> tuple[Device, ...]:
    """The GPUs of a machine, by the order of their nodes."""
    nodes = sorted(
        (path for path in topology.glob("*") if path.name.isdigit()), key=lambda one: int(one.name)
    )
    found: list[Device] = []
    for node in nodes:
        with contextlib.suppress(OSError, ValueError):
            said = _properties(node / "properties")
            if int(said.get("simd_count", "0")) > 0:
                found.append(_device(node, said, len(found)))
    return tuple(found)[:MAX_DEVICES]


def _device(node: Path, said: dict[str, str], index: int) -> Device:
    unique, minor = int(said.get("unique_id", "0")), int(said.get("drm_render_minor", "0"))
    banks = [_properties(path) for path in sorted(node.glob("mem_banks/*/properties"))]
    own = [int(one["size_in_bytes"]) for one in banks if one.get("heap_type") in _OWN]
    product = ""
    with contextlib.suppress(OSError):
        product = (node / "name").read_text().strip()[:100]
    return Device(
        # An index counts what a process can reach, so that then it has to reach all of them.
        id=f"GPU-{unique:016x}" if unique else str(index),
        vendor=AMD,
        product=product,
        memory_bytes=sum(own),
        nodes=(f"/dev/dri/renderD{minor}",) if unique and minor else None,
    )


def _properties(path: Path) -> dict[str, str]:
    lines = (line.split(maxsplit=1) for line in path.read_text().splitlines())
    return {words[0]: words[1].strip() for words in lines if len(words) == 2}
