"""GPUs of a machine: which there are, and which of them are given out."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

NVIDIA, AMD = "nvidia", "amd"
# The variable by which a process is told its GPUs.
VISIBLE = {NVIDIA: "CUDA_VISIBLE_DEVICES", AMD: "ROCR_VISIBLE_DEVICES"}
MAX_DEVICES = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """A GPU. `nodes` are its own device files; None where they are not known."""

    # As its vendor's variable takes it.
    id: str
    vendor: str = NVIDIA
    product: str = ""
    memory_bytes: int = 0
    nodes: tuple[str, ...] | None = field(default=None)

    @property
    def paths(self) -> tuple[Path, ...] | None:
        """The device files of it; None where they are not known."""
        return None if self.nodes is None else tuple(map(Path, self.nodes))


def named(names: Iterable[str], found: Sequence[Device]) -> tuple[Device, ...]:
    """The devices of those indexes or ids; one that was not found is taken at its word."""
    chosen = (_find(name, found) or Device(id=name) for name in names)
    return tuple({device.id: device for device in chosen}.values())


def visible(found: Sequence[Device], environment: Mapping[str, str]) -> tuple[Device, ...]:
    """The devices that the vendor's variable leaves to this process, all where it is not set.

    As the vendors' libraries do, it reads up to the first name that means nothing.
    """
    vendor = found[0].vendor if found else NVIDIA
    value = environment.get(VISIBLE[vendor])
    if value is None:
        return tuple(found)
    seen: dict[str, Device] = {}
    for name in map(str.strip, value.split(",")):
        device = _find(name, found)
        if device is None and name.startswith("MIG-"):
            device = Device(id=name)
        if device is None:
            break
        seen[device.id] = device
    return tuple(seen.values())


def _find(name: str, found: Sequence[Device]) -> Device | None:
    if name.isascii() and name.isdigit():
        return found[int(name)] if len(name) < 5 and int(name) < len(found) else None
    # A beginning that is one device's alone is enough.
    begun = [device for device in found if name and device.id.startswith(name)]
    return begun[0] if len(begun) == 1 else None
