"""Loaded adapters: their users, and the eviction of unused ones."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Protocol

from windlass.inference_api.errors import ApiError, model_not_found


class Weights(Protocol):
    """Puts adapters into the model and takes them out."""

    def attach(self, key: str, path: Path) -> None:
        """Loads one; raises ApiError."""

    def detach(self, key: str) -> None:
        """Frees one."""


Call = Callable[[Callable[[], None]], Awaitable[None]]
"""Runs something between two ticks of the scheduler."""


@dataclass(slots=True)
class LoadedAdapter:
    """A loaded adapter; `key` is its name inside the model."""

    name: str
    key: str
    path: Path
    scores: bool = False
    loaded_at: int = field(default_factory=lambda: int(time.time()))
    users: int = 0
    used: int = 0
    retired: bool = False


class Adapters:
    """The adapters in memory, `limit` of them at most; used on the event loop alone."""

    def __init__(self, base: str, weights: Weights, call: Call, *, limit: int):
        self._base = base
        self._weights = weights
        self._call = call
        self._limit = limit
        self._held: dict[str, LoadedAdapter] = {}
        self._clock = 0
        self._keys = 0
        self._changing = asyncio.Lock()
        self._freeing: set[asyncio.Task[None]] = set()

    def loaded(self) -> list[LoadedAdapter]:
        """Returns the adapters that answer requests."""
        return [adapter for adapter in self._held.values() if not adapter.retired]

    @contextmanager
    def use(self, model: str) -> Iterator[LoadedAdapter | None]:
        """Pins the adapter called `model` (None: the base) in memory; raises ApiError 404."""
        adapter = self._find(model)
        if adapter is None:
            if model != self._base:
                raise model_not_found(model)
            yield None
            return
        self._clock += 1
        adapter.used = self._clock
        adapter.users += 1
        try:
            yield adapter
        finally:
            adapter.users -= 1
            if adapter.retired and not adapter.users:
                self._free_later(adapter)

    async def load(self, name: str, path: Path, *, scores: bool = False) -> None:
        """Loads an adapter, in place of the least recently used idle one if need be.

        Raises ApiError: 400 for a name that is taken or weights that do not fit,
        503 when all places are in use.
        """
        async with self._changing:
            if name == self._base or self._find(name):
                raise ApiError(
                    f"The lora adapter '{name}' has already been loaded.",
                    param="lora_name",
                    code="adapter_exists",
                )
            while len(self._held) >= self._limit:
                await self._make_room()
            self._keys += 1
            key = f"adapter{self._keys}"
            await self._call(partial(self._weights.attach, key, path))
            self._clock += 1
            self._held[key] = LoadedAdapter(name, key, path, scores, used=self._clock)

    async def unload(self, name: str) -> None:
        """Stops answering as `name`; the memory goes when the last request has ended."""
        async with self._changing:
            adapter = self._find(name)
            if adapter is None:
                raise ApiError(
                    f"The lora adapter '{name}' cannot be found.",
                    status=404,
                    param="lora_name",
                    code="adapter_not_found",
                )
            adapter.retired = True
            if not adapter.users:
                await self._free(adapter)

    def _find(self, name: str) -> LoadedAdapter | None:
        return next((adapter for adapter in self.loaded() if adapter.name == name), None)

    async def _make_room(self) -> None:
        if self._freeing:
            await asyncio.wait(self._freeing)
            return
        idle = [adapter for adapter in self.loaded() if not adapter.users]
        # Places of what was unloaded and is in use come free by themselves: nobody else's is taken.
        if len(self.loaded()) < self._limit or not idle:
            raise ApiError(
                f"All {self._limit} places for adapters are in use. Try again later.",
                status=503,
                code="adapters_in_use",
            )
        oldest = min(idle, key=lambda adapter: adapter.used)
        oldest.retired = True
        await self._free(oldest)

    def _free_later(self, adapter: LoadedAdapter) -> None:
        task = asyncio.ensure_future(self._free(adapter))
        self._freeing.add(task)
        task.add_done_callback(self._freeing.discard)

    async def _free(self, adapter: LoadedAdapter) -> None:
        await self._call(partial(self._weights.detach, adapter.key))
        self._held.pop(adapter.key, None)
