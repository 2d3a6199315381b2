"""Topology of a distributed training, read from torchrun's variables (`PET_*`)."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

# Nodes start when their images and inputs are there, which takes some longer than others.
_MEETING_SECONDS = 1800


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """Number of nodes, number of processes on each, and the rank of this node."""

    nodes: int = 1
    processes: int = 1
    node: int = 0

    @classmethod
    def of(cls, environ: Mapping[str, str]) -> Self:
        """Reads a pod's variables; raises ValueError for invalid numbers."""
        read = {
            "nodes": environ.get("PET_NNODES", "1"),
            "processes": environ.get("PET_NPROC_PER_NODE", "1"),
            "node": environ.get("PET_NODE_RANK", "0"),
        }
        world = cls(**{name: int(value) for name, value in read.items()})
        if min(world.nodes, world.processes) < 1 or not 0 <= world.node < world.nodes:
            raise ValueError(f"invalid PET_* variables: {read}")
        return world

    @property
    def leads(self) -> bool:
        """True if this node's first process is the first of all: it speaks for the job."""
        return self.node == 0

    @property
    def size(self) -> int:
        """Processes on all nodes."""
        return self.nodes * self.processes

    def variables(self, *, grace_seconds: float) -> dict[str, str]:
        """The variables torchrun reads beside its place; processes get `grace_seconds` to save."""
        if self.size == 1:
            return {}
        found = {"PET_SHUTDOWN_TIMEOUT": str(max(1, int(grace_seconds)))}
        if self.nodes > 1:
            found["PET_RDZV_CONF"] = f"timeout={_MEETING_SECONDS}"
        return found


ALONE = World()
