"""Processes of the tuning service in pods, as engines that the keeper starts and watches.

They answer `windlass.api.trainer.v1` alone, so that the keeper steers nothing of them.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from windlass.api.clusters.v1 import clusters_pb2 as pb
from windlass.core.ids import is_identifier
from windlass.tuning_api.trainers.remote.process import LOOPBACK, torchrun
from windlass_agent.engines.endpoint import parse_endpoint
from windlass_agent.engines.load import EngineLoad
from windlass_agent.engines.port import (
    CapabilityMissing,
    EngineCapabilities,
    EngineControl,
    EngineKind,
    EngineSpec,
)

TRAINER = "trainer"
ROLES = ("trainer", "sampler")
MAX_PROCESSES, MAX_RANK = 64, 1024
# Of its scratch; states and models lie below it.
STATES = "states"
NO_CAPABILITIES = EngineCapabilities()
_DIGEST_BYTES = 32
_ENGINE = re.compile(r"([a-z0-9][a-z0-9_-]{0,63})?")


@dataclass(frozen=True)
class TrainerKind:
    """A trainer, or the sampler of one session, by what its workload says of it."""

    python: Path
    process: pb.TrainerProcess
    name: str = TRAINER
    capabilities: EngineCapabilities = NO_CAPABILITIES
    memory_bytes: int = 2 * 2**30
    shares_gpus: bool = True

    def installed(self) -> bool:
        """Returns False: it runs in pods alone."""
        return False

    def sleeps(self, gpus: int) -> bool:
        """Returns False: the tuning service ends what rests."""
        return False

    def trained(self) -> EngineKind:
        """Raises CapabilityMissing: its weights are its run's."""
        raise _lacking("training")

    def programs(self) -> tuple[Path, ...]:
        """No others than the agent's."""
        return ()

    def environment(self, spec: EngineSpec) -> dict[str, str]:
        """The place where the processes of one run talk."""
        return dict(LOOPBACK)

    def command(self, spec: EngineSpec) -> list[str]:
        """The arguments that start it, under torchrun where our engine has several processes."""
        asked, address = self.process, parse_endpoint(spec.endpoint)
        words = [
            f"--listen={address.host}:{address.port}",
            f"--token-sha256={asked.token_sha256.hex()}",
            f"--checkpoints={spec.scratch / STATES}",
            f"--model={spec.served_name}",
            f"--folder={spec.model_dir}",
            f"--max-rank={asked.max_rank}",
        ]
        several = 1
        if asked.full:
            words += ["--full", f"--engine={asked.engine}", f"--processes={asked.processes}"]
            several = 1 if asked.engine else asked.processes
        return [str(self.python), *torchrun(several), "-m", "windlass_agent.tuning", *words]

    def control(self, endpoint: str) -> EngineControl:
        """A handle that steers nothing."""
        return TrainerControl()


def require_sound(asked: pb.TrainerProcess) -> None:
    """Raises ValueError for what is no trainer or would not be a good word of a command."""
    if asked.role not in ROLES:
        raise ValueError(f"{asked.role[:64]!r} is no role of a trainer")
    if not _ENGINE.fullmatch(asked.engine):
        raise ValueError("the name of the trainer's engine is not valid")
    if not (1 <= asked.processes <= MAX_PROCESSES and 1 <= asked.max_rank <= MAX_RANK):
        raise ValueError("the trainer's processes or rank are out of bounds")
    if len(asked.token_sha256) != _DIGEST_BYTES:
        raise ValueError("the trainer's token has no digest")
    if asked.lease_id and not is_identifier(asked.lease_id):
        raise ValueError("the id of the trainer's lease is not valid")


class TrainerControl:
    """Implements `EngineControl` for what listens once it has its model, and obeys others."""

    async def ready(self) -> bool:
        """Returns True: its keeper sees whether it listens."""
        return True

    async def served(self) -> EngineCapabilities:
        """Returns none that a gateway could use."""
        return NO_CAPABILITIES

    async def warm(self, model: str, task: str) -> None:
        """Asks nothing: the first request is the tuning service's."""

    async def open_requests(self) -> int:
        """0: what an end cuts is done again from the log."""
        return 0

    async def load(self) -> EngineLoad:
        """Raises CapabilityMissing."""
        raise _lacking("load")

    async def load_adapter(self, adapter_id: str, path: Path) -> None:
        """Raises CapabilityMissing."""
        raise _lacking("adapters")

    async def unload_adapter(self, adapter_id: str) -> None:
        """Raises CapabilityMissing."""
        raise _lacking("adapters")

    async def loaded_adapters(self) -> Mapping[str, str]:
        """Raises CapabilityMissing."""
        raise _lacking("adapters")

    async def update_weights(self, version: int, path: Path) -> None:
        """Raises CapabilityMissing."""
        raise _lacking("weight_updates")

    async def asleep(self) -> bool:
        """Raises CapabilityMissing."""
        raise _lacking("sleep")

    async def sleep(self) -> None:
        """Raises CapabilityMissing."""
        raise _lacking("sleep")

    async def wake(self) -> None:
        """Raises CapabilityMissing."""
        raise _lacking("sleep")

    async def weight_version(self) -> int:
        """Raises CapabilityMissing."""
        raise _lacking("weight_version")

    async def close(self) -> None:
        """Releases nothing."""


def _lacking(capability: str) -> CapabilityMissing:
    return CapabilityMissing(TRAINER, capability)
