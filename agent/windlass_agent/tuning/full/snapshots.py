"""Sampling from what runs of all parameters saved: models, of which one is held at a time."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from windlass_agent.tuning.trainer.driver import EngineThread

# Loads a folder's model, ready to continue prompts; raises UnfitBase.
Load = Callable[[Path], EngineThread]


class Snapshots:
    """The model that prompts were last continued with; another one takes its place."""

    def __init__(self, load: Load):
        self._load = load
        self._held: tuple[tuple[Path, int, int], EngineThread] | None = None
        self._used = 0
        self._turn = asyncio.Lock()
        self._idle = asyncio.Event()
        self._idle.set()

    @asynccontextmanager
    async def of(self, folder: Path) -> AsyncIterator[EngineThread]:
        """Yields the model of a folder once nobody needs the one before; raises UnfitBase."""
        async with self._turn:
            thread = await self._taken(folder)
            self._used += 1
            self._idle.clear()
        try:
            yield thread
        finally:
            self._used -= 1
            if not self._used:
                self._idle.set()

    @asynccontextmanager
    async def let_go(self) -> AsyncIterator[None]:
        """Lets the model go once nobody needs it, and none be loaded during the block."""
        async with self._turn:
            await self._idle.wait()
            await self.stop()
            yield

    async def stop(self) -> None:
        """Lets the model go; prompts that wait get RunClosed."""
        if self._held is not None:
            await asyncio.to_thread(self._held[1].stop)
            self._held = None

    async def _taken(self, folder: Path) -> EngineThread:
        found = folder.stat()
        # Another may have had the same name before.
        key = (folder, found.st_ino, found.st_mtime_ns)
        if self._held is not None and self._held[0] == key:
            return self._held[1]
        await self._idle.wait()
        await self.stop()
        thread = await asyncio.to_thread(self._load, folder)
        self._held = (key, thread)
        return thread
