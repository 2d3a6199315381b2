"""Number of engines by load; pure, with a memory of its own recommendations.

The rules are those of Kubernetes' HorizontalPodAutoscaler with its defaults:
https://kubernetes.io/docs/tasks/run-application/horizontal-pod-autoscale/
"""

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

# A load so near to the target changes nothing.
TOLERANCE = 0.1
# Percent points: by less than a step, agents may say another use of a cache than there is. The
# HPA's tenth would make of a target of 90 one of 99, which a full vLLM hardly ever shows.
CACHE_STEP = 5
CACHE_TOLERANCE = 4
# Fewer are recommended for so long before fewer run.
DOWN_SECONDS = 300.0
# In one period as many as are there may be added, and these few in any case.
UP_SECONDS = 15.0
UP_AT_LEAST = 4


@dataclass(frozen=True, slots=True)
class ScaleBounds:
    """Bounds of a model's engines, and what each of them should have."""

    least: int
    most: int
    # Open requests.
    target: int
    # Percent of its cache in use; 0: however much is.
    target_cache: int = 0


def recommended(
    current: int, load: int, bounds: ScaleBounds, cache: Sequence[int | None] = ()
) -> int:
    """The engines that so many open requests need, whatever was before.

    `cache` is the percent in use of each engine's cache; None of one that does not say.
    """
    if current and abs(load / (current * bounds.target) - 1) <= TOLERANCE:
        wanted = current
    else:
        wanted = math.ceil(load / bounds.target)
    # One more than there are requests would have none, whatever agents say.
    wanted = max(wanted, min(_with_room(current, cache, bounds.target_cache), load))
    return min(max(wanted, bounds.least), bounds.most)


def _with_room(current: int, cache: Sequence[int | None], target: int) -> int:
    """The engines of which each would use the target of its cache; 0 where nothing is known.

    What does not say counts as the HPA counts missing metrics: as idle where more may follow, and
    as used to the target where fewer may.
    """
    known = [one for one in cache if one is not None]
    if not (known and target):
        return 0
    used, unknown = sum(known), max(0, current - len(known))
    if used > (target + CACHE_TOLERANCE) * (len(known) + unknown):
        return math.ceil(used / target)
    used += CACHE_STEP * len(known) + target * unknown
    return min(current, math.ceil(used / target))


class Scaler:
    """The numbers of engines of one model over time; times are seconds of one clock."""

    def __init__(self, *, down_seconds: float = DOWN_SECONDS):
        self._down_seconds = down_seconds
        # When, and what was recommended then; the largest of those that count comes first.
        self._recommended: deque[tuple[float, int]] = deque()
        # When, and how many there were then.
        self._counts: deque[tuple[float, int]] = deque()

    def decide(
        self,
        now: float,
        current: int,
        load: int,
        bounds: ScaleBounds,
        cache: Sequence[int | None] = (),
    ) -> int:
        """The engines that should run now, of which `current` do.

        More follow at once, as fast as may be; fewer once nothing else was recommended for a
        while. A scaler that is new, or was not asked for long, takes what runs for a
        recommendation.
        """
        self._forget(now)
        if not self._recommended:
            self._remember(now, current)
        self._remember(now, recommended(current, load, bounds, cache))
        wanted = self._recommended[0][1]
        wanted = min(wanted, self._fastest(now, current))
        return min(max(wanted, bounds.least), bounds.most)

    def _remember(self, now: float, number: int) -> None:
        """Keeps the largest of the recommendations that still count, and those after it."""
        while self._recommended and self._recommended[-1][1] <= number:
            self._recommended.pop()
        self._recommended.append((now, number))

    def _forget(self, now: float) -> None:
        """Drops what is too old to count."""
        while self._recommended and self._recommended[0][0] < now - self._down_seconds:
            self._recommended.popleft()

    def _fastest(self, now: float, current: int) -> int:
        """The most engines that may run now, by how many there were a period ago."""
        self._counts.append((now, current))
        while len(self._counts) > 1 and self._counts[1][0] <= now - UP_SECONDS:
            self._counts.popleft()
        before = min(count for _, count in self._counts)
        return before + max(before, UP_AT_LEAST)


class Scalers:
    """A scaler for each version, forgotten once nobody asks for it."""

    def __init__(self, *, down_seconds: float = DOWN_SECONDS):
        self._down_seconds = down_seconds
        self._by_version: dict[str, Scaler] = {}

    def decide(
        self,
        version: str,
        now: float,
        current: int,
        load: int,
        bounds: ScaleBounds,
        cache: Sequence[int | None] = (),
    ) -> int:
        """The engines of a version that should run now."""
        if version not in self._by_version:
            self._by_version[version] = Scaler(down_seconds=self._down_seconds)
        return self._by_version[version].decide(now, current, load, bounds, cache)

    def keep(self, versions: set[str]) -> None:
        """Forgets all others."""
        self._by_version = {one: it for one, it in self._by_version.items() if one in versions}
