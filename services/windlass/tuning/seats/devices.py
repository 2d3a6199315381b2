"""Devices of this machine, and what trainers take of them."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psutil

from windlass.core.config.tuning import DeviceSection, SeatsSection
from windlass.tuning.full_parameters import PARAMETER_BYTES
from windlass.tuning_api.seating.admission import Demand
from windlass.tuning_api.trainers.seats import SeatedWorkload

PROCESSORS = "cpu"
# Of a trainer beside the weights: adapters, what a pass computes, and the program itself.
WORK_BYTES = PROGRAM_BYTES = 512 * 2**20
# Of a process whose tensors have gone from a GPU; the driver keeps it.
GPU_RESIDUE_BYTES = 640 * 2**20
_HOST_SHARE = 0.9


def declared(settings: SeatsSection) -> list[dict[str, Any]]:
    """The rows of the devices that are configured, or of the processors."""
    host_bytes = settings.host_bytes or int(psutil.virtual_memory().total * _HOST_SHARE)
    found: Mapping[str, DeviceSection] = settings.devices or {
        PROCESSORS: DeviceSection(device_bytes=host_bytes)
    }
    return [
        {
            "device": name,
            "host_bytes": host_bytes,
            "max_residents": settings.max_residents,
            **one.model_dump(exclude={"visible"}),
        }
        for name, one in found.items()
    ]


def demand_of(
    settings: SeatsSection, folders: Mapping[str, Path], workload: SeatedWorkload
) -> Demand:
    """Memory that a trainer takes: as configured for its model, or by the size of its files.

    One that trains all parameters takes what those, their gradients and their moments do.
    """
    if workload.trained:
        return _taking(settings, workload.trained * PARAMETER_BYTES)
    if (found := settings.demands.get(workload.base_model)) is not None:
        return Demand(**found.model_dump())
    files = folders[workload.base_model].glob("*.safetensors")
    return _taking(settings, sum(one.stat().st_size for one in files))


def _taking(settings: SeatsSection, content: int) -> Demand:
    device = content + WORK_BYTES
    is_gpu = bool(settings.devices)
    # The memory of the processors is the host's, whether a trainer is parked or not.
    held = device if settings.turns or not is_gpu else 0
    return Demand(device, PROGRAM_BYTES + held, GPU_RESIDUE_BYTES if is_gpu else 0)


def as_environment(settings: SeatsSection, name: str) -> dict[str, str]:
    """Variables that a trainer on a device has in its environment."""
    device = settings.devices.get(name)
    if device is None or not device.visible:
        return {}
    return {"CUDA_VISIBLE_DEVICES": device.visible}
