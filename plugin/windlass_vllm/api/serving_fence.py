"""The fence behind which a step is applied: serving stands still, and goes on whatever happens."""

import asyncio
from typing import Protocol

from windlass_vllm.api.training_process import TrainingProcess
from windlass_vllm.messages import Pass


class PausedEngine(Protocol):
    """The part of vLLM's client that pauses it."""

    async def pause_generation(self, *, mode: str, clear_cache: bool) -> None:
        """Freezes requests; with `clear_cache` they compute their keys and values anew."""

    async def resume_generation(self) -> None:
        """Lets requests go on."""


class ServingFence:
    """A pause of one engine for one step at a time."""

    def __init__(self, engine: PausedEngine, most_seconds: int) -> None:
        self._engine, self._most_seconds = engine, most_seconds
        self._watch: asyncio.Task[None] | None = None

    async def hold(self, job: str, process: TrainingProcess) -> None:
        """Stops serving and lets the worker step; one that takes too long is killed."""
        self._watch = asyncio.get_running_loop().create_task(self._kill_late(process))
        await self._engine.pause_generation(mode="keep", clear_cache=True)
        await process.send(Pass(job))

    async def release(self) -> None:
        """Lets serving go on, if it stands still."""
        if self._watch is not None:
            self._watch.cancel()
            self._watch = None
            await self._engine.resume_generation()

    async def _kill_late(self, process: TrainingProcess) -> None:
        await asyncio.sleep(self._most_seconds)
        await process.kill()
