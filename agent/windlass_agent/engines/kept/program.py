"""The program that a keeper completes: a process of its own, or one in another container."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from windlass_agent.engines.kept.neighbour import NeighbourProgram

# That what it wrote may take to come, once it has ended.
OUTPUT_SECONDS = 2.0


class KeptProgram(Protocol):
    """A program that runs."""

    @property
    def returncode(self) -> int | None:
        """Status once it has ended, else None."""

    @property
    def stdout(self) -> asyncio.StreamReader | None:
        """Stream of what it writes; None where that goes elsewhere."""

    async def wait(self) -> int:
        """Waits for its end; returns its status."""

    def terminate(self) -> None:
        """Asks it to end; raises ProcessLookupError for one that has."""

    def kill(self) -> None:
        """Ends it at once; raises ProcessLookupError for one that has ended."""


async def start_program(command: Sequence[str], neighbours: Path | None) -> KeptProgram:
    """Starts a program here, or by the folder of `neighbours`; raises OSError."""
    if neighbours is not None:
        return await NeighbourProgram.start(command, neighbours)
    return await asyncio.create_subprocess_exec(
        *command,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )


async def finish(output: asyncio.Task[None]) -> None:
    """Waits for the last words of a program that has ended; a child of it may keep its pipe."""
    await asyncio.wait([output], timeout=OUTPUT_SECONDS)
    output.cancel()
    await asyncio.gather(output, return_exceptions=True)
