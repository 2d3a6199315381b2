"""Ways in which a trainer frees its device for another, and gets it back."""

import asyncio
from pathlib import Path
from typing import Protocol

from windlass.tuning_api.trainers.port import TrainerLost
from windlass.tuning_api.trainers.seats import ResidentProcess

_SAID_BYTES = 500


class Parking(Protocol):
    """One way; whoever calls it sets the deadline, and ends what does not keep it."""

    # Whether the device is free while a process is parked.
    frees_device: bool

    async def park(self, process: ResidentProcess) -> int:
        """Frees the device; returns the bytes that are known to be free, 0: not known.

        Raises TrainerLost.
        """
        ...

    async def restore(self, process: ResidentProcess) -> None:
        """Brings everything back as it was. Raises TrainerLost."""
        ...


class ApplicationParking:
    """The trainer moves its tensors to the host's memory by itself, and back."""

    frees_device = True

    async def park(self, process: ResidentProcess) -> int:
        """Asks the process."""
        return await process.park()

    async def restore(self, process: ResidentProcess) -> None:
        """Asks the process."""
        await process.restore()


class CheckpointParking:
    """NVIDIA's `cuda-checkpoint` moves what the driver holds for a process to its host memory.

    Of processes on one device alone: communication between devices does not survive it. Tests run
    it against a program of the same contract; with the real one it has not been run.
    """

    frees_device = True

    def __init__(self, program: Path):
        self._program = program

    async def park(self, process: ResidentProcess) -> int:
        """Locks the process out of its device, and moves what it had there."""
        for action in ("lock", "checkpoint"):
            await self._run(action, process.pid)
        return 0

    async def restore(self, process: ResidentProcess) -> None:
        """Moves everything back, and lets the process go on."""
        for action in ("restore", "unlock"):
            await self._run(action, process.pid)

    async def _run(self, action: str, pid: int) -> None:
        words = (str(self._program), "--action", action, "--pid", str(pid))
        try:
            started = await asyncio.create_subprocess_exec(
                *words,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
            )
        except OSError as error:
            raise TrainerLost(f"{self._program} cannot be started: {error}") from error
        try:
            said, _ = await started.communicate()
        finally:
            if started.returncode is None:
                started.kill()
                await started.wait()
        if started.returncode:
            text = said[-_SAID_BYTES:].decode(errors="replace").strip()
            raise TrainerLost(f"cuda-checkpoint could not {action} it: {text}")


class NoParking:
    """Trainers keep what they have on the device, so that all of them have to fit."""

    frees_device = False

    async def park(self, process: ResidentProcess) -> int:
        """Moves nothing."""
        return 0

    async def restore(self, process: ResidentProcess) -> None:
        """Moves nothing."""


def parking_of(name: str, program: Path) -> Parking:
    """The way of this name."""
    if name == "cuda-checkpoint":
        return CheckpointParking(program)
    return ApplicationParking() if name == "application" else NoParking()
