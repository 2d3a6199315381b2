"""Pauses before trying again, which double so that what is down is not flooded."""

import random
from typing import TypeVar

Number = TypeVar("Number", int, float)
# Twice as often as any pause is doubled; beyond, a power costs more than it says.
_DOUBLINGS = 40


def doubled(shortest: Number, failures: int, *, longest: Number) -> Number:
    """Returns the pause after so many failures before the last: exact, for a date in a row."""
    return min(shortest * (1 << min(failures, _DOUBLINGS)), longest)


class Backoff:
    """Jittered pauses that double from `shortest` to `longest` seconds."""

    def __init__(self, *, shortest: float = 0.2, longest: float = 10.0):
        self._shortest = shortest
        self._longest = longest
        self._bound = shortest

    def reset(self) -> None:
        """Begins with the shortest pause again."""
        self._bound = self._shortest

    def next(self) -> float:
        """Returns seconds between half the present bound and all of it, and doubles the bound."""
        bound, self._bound = self._bound, min(self._bound * 2, self._longest)
        return random.uniform(bound / 2, bound)  # noqa: S311 - spreads load

    async def pause(self) -> None:
        """Sleeps for the next pause."""
        # The command takes `next` alone, and starts faster without this.
        import asyncio

        await asyncio.sleep(self.next())
