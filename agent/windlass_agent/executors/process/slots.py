"""Places to run in: a fixed number of them, given in the order of asking."""

import asyncio


class Slots:
    """First come, first served; keys name who holds or waits."""

    def __init__(self, size: int):
        self.size = size
        self._holders: set[str] = set()
        self._waiting: dict[str, asyncio.Event] = {}

    @property
    def used(self) -> int:
        """Places taken; more than `size` when what was adopted needs more."""
        return len(self._holders)

    def position(self, key: str) -> int:
        """The place in the queue, from 1; 0 for who does not wait."""
        return next((place for place, name in enumerate(self._waiting, 1) if name == key), 0)

    async def acquire(self, key: str) -> None:
        """Waits for a place; a cancelled wait leaves the queue and gives back what it got."""
        turn = self._waiting[key] = asyncio.Event()
        self._promote()
        try:
            await turn.wait()
        except BaseException:
            self.release(key)
            raise

    def take(self, key: str) -> None:
        """Takes a place at once, free or not, for something that runs already."""
        self._holders.add(key)

    def release(self, key: str) -> None:
        """Gives up a place, or the wait for one."""
        self._holders.discard(key)
        self._waiting.pop(key, None)
        self._promote()

    def _promote(self) -> None:
        while self._waiting and len(self._holders) < self.size:
            key = next(iter(self._waiting))
            self._holders.add(key)
            self._waiting.pop(key).set()
