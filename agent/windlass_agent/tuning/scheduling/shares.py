"""Service by weight, counted in tokens."""

from collections.abc import Iterable


class TokenShares:
    """Remembers what each name was served, so that the least served comes next.

    Who was away comes back level with the least served of those who waited: absence saves nothing
    up, and a queue of any length delays a newcomer by no more than the pass that is running.
    """

    def __init__(self) -> None:
        self._served: dict[str, float] = {}
        self._waiting: set[str] = set()
        self._level = 0.0

    def observe(self, waiting: Iterable[str]) -> None:
        """Notes who waits now; must be told before `least_served` of each round."""
        now = set(waiting)
        stayed = [self._served[name] for name in self._waiting & now]
        self._level = max(self._level, min(stayed, default=self._level))
        for name in now - self._waiting:
            self._served[name] = max(self._served.get(name, 0.0), self._level)
        self._waiting = now
        gone = [name for name in self._served if name not in now]
        for name in gone:
            if self._served[name] <= self._level:
                del self._served[name]

    def least_served(self, names: Iterable[str]) -> str:
        """Returns the one of `names` whose turn it is."""
        return min(names, key=lambda name: (self._served[name], name))

    def charge(self, name: str, tokens: int, weight: float = 1.0) -> None:
        """Counts tokens as served."""
        self._served[name] += tokens / weight
