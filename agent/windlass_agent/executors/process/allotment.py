"""Share of the machine given to one attempt or engine: decided once, before it starts."""

from dataclasses import dataclass
from pathlib import Path

from windlass.api.jobs.v1.jobs_pb2 import Resources
from windlass.confinement import WorkloadLimits
from windlass_agent.machine import Device
from windlass_agent.machine.devices import AMD
from windlass_agent.memory import default_limits

# Hides the GPUs of either vendor from every library.
_NO_GPUS = {
    "CUDA_VISIBLE_DEVICES": "", "ROCR_VISIBLE_DEVICES": "-1", "HIP_VISIBLE_DEVICES": "-1",
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceRequest:
    """Resources that a workload requests; CPUs and memory of 0 are unlimited."""

    gpus: int = 0
    cpus: int = 0
    memory_bytes: int = 0
    # No other engine may have these GPUs; jobs share none anyway.
    alone: bool = False

    @classmethod
    def of(cls, resources: Resources) -> "ResourceRequest":
        """The amounts that a workload's resources ask for."""
        return cls(gpus=resources.gpus, cpus=resources.cpus, memory_bytes=resources.memory_bytes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Allotment:
    """Resources that a workload was given, kept in its record."""

    devices: tuple[Device, ...] = ()
    alone: bool = False
    # 0: as many as the machine has.
    cpus: int = 0
    # As many CPUs by number, for where no control group can bound them.
    processors: tuple[int, ...] = ()
    # 0: nobody asked, so that it may take as much as `memory_bound`; 0: most of what there is.
    memory_bytes: int = 0
    memory_bound: int = 0

    def environment(self, processes: int = 1) -> dict[str, str]:
        """Variables for the workload, of which `processes` compute side by side."""
        found = {"OMP_NUM_THREADS": str(max(1, self.cpus // processes))} if self.cpus else {}
        if not self.devices:
            return _NO_GPUS | found
        names = ",".join(device.id for device in self.devices)
        if self.devices[0].vendor != AMD:
            return {"CUDA_VISIBLE_DEVICES": names} | found
        # HIP counts among those that the runtime below it shows, by either of its variables.
        places = ",".join(map(str, range(len(self.devices))))
        within = {"HIP_VISIBLE_DEVICES": places, "CUDA_VISIBLE_DEVICES": places}
        return {"ROCR_VISIBLE_DEVICES": names} | within | found

    def limits(self) -> WorkloadLimits:
        """The limits of the workload."""
        return WorkloadLimits(
            memory=default_limits(self.memory_bytes or self.memory_bound).memory,
            cpus=self.cpus,
            processors=self.processors,
        )

    def nodes(self) -> tuple[Path, ...] | None:
        """The device files of its GPUs; None where those of one are not known."""
        found: list[Path] = []
        for device in self.devices:
            if device.paths is None:
                return None
            found += device.paths
        return tuple(found)
