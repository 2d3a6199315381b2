"""Adapters in the places of an engine."""

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

# Of the names of adapters in an engine that are ours.
PREFIX = "tuning-"
Load = Callable[[str, Path], Awaitable[None]]
Unload = Callable[[str], Awaitable[None]]


@dataclass(eq=False)
class _AdapterPlace:
    users: int = 0


class AdapterSlots:
    """Loads the adapters that are asked for, and unloads those that were not for the longest.

    Never more than there are places: vLLM reads what fell out of its own again, from a folder that
    may be gone.
    """

    def __init__(self, places: int, load: Load, unload: Unload):
        self._places = places
        self._load = load
        self._unload = unload
        # The least recently used first.
        self._taken: OrderedDict[str, _AdapterPlace] = OrderedDict()
        self._changed = asyncio.Condition()

    @asynccontextmanager
    async def loaded(self, folder: Path) -> AsyncIterator[str]:
        """The name by which the engine has an adapter for the length of the block.

        Waits while all places are in use. Raises what loading does.
        """
        name = _name(folder)
        async with self._changed:
            place = await self._placed(name, folder)
            place.users += 1
            self._taken.move_to_end(name)
        try:
            yield name
        finally:
            place.users -= 1
            async with self._changed:
                self._changed.notify_all()

    def holds(self, name: str) -> bool:
        """True of an adapter that has a place."""
        return name in self._taken

    def lost(self, name: str = "") -> None:
        """Notes that the engine may have none any more, and surely not `name`, as after a restart.

        Those that nobody uses are loaded again, and `name` whoever uses it.
        """
        self._taken = OrderedDict(
            (one, place) for one, place in self._taken.items() if place.users and one != name
        )

    async def _placed(self, name: str, folder: Path) -> _AdapterPlace:
        while (found := self._taken.get(name)) is None:
            if len(self._taken) < self._places:
                # One at a time, as the engine does it too.
                await self._load(name, folder)
                self._taken[name] = _AdapterPlace()
                continue
            idle = next((one for one, place in self._taken.items() if not place.users), None)
            if idle is None:
                await self._changed.wait()
                continue
            await self._unload(idle)
            self._taken.pop(idle, None)
        return found


def _name(folder: Path) -> str:
    """A name of what lies in a folder now: another may have had the same name before."""
    found = folder.stat()
    return f"{PREFIX}{folder.name}-{found.st_ino:x}-{found.st_mtime_ns:x}"
