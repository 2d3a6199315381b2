"""Number of engines by load; pure, with a memory of its own recommendations.

The rules are those of Kubernetes' HorizontalPodAutoscaler with its defaults:
https://kubernetes.io/docs/tasks/run-application/horizontal-pod-autoscale/
"""

import math
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Self

from windlass.api.clusters.v1.clusters_pb2 import ServingLoad
from windlass.bounds import TARGET_REQUESTS
from windlass.inference.domain import Serving

# A load so near to the target changes nothing.
TOLERANCE = 0.1
# Percent points: by less than a step, agents may say another use than there is. The HPA's tenth
# would make of a target of 90 one of 99, which a full vLLM hardly ever shows.
USE_STEP = 5
USE_TOLERANCE = 4
# Fewer are recommended for so long before fewer run.
DOWN_SECONDS = 300.0
# In one period as many as are there may be added, and these few in any case.
UP_SECONDS = 15.0
UP_AT_LEAST = 4
# Of what is divided twice and should be whole.
_ROUNDING = 1e-9


@dataclass(frozen=True, slots=True)
class ScaleBounds:
    """Bounds of a model's engines, and what each of them should have."""

    least: int
    most: int
    # Open requests.
    target: int
    # Percent of its cache in use, and of its GPUs' time; 0: however much is.
    target_cache: int = 0
    target_gpu: int = 0
    # Seconds that a request may wait; 0: however long.
    target_wait_seconds: int = 0
    # When they were set: what was learned with others counts no more.
    set_at: float = 0.0

    @classmethod
    def of(cls, serving: Serving, now: float) -> Self:
        """Returns the bounds that a serving sets at a time, in Unix seconds."""
        return cls(
            least=max(1, serving.least(now)),
            most=serving.max_replicas,
            target=serving.target_requests or TARGET_REQUESTS,
            target_cache=serving.target_cache,
            target_gpu=serving.target_gpu,
            target_wait_seconds=serving.target_wait_seconds,
            set_at=serving.updated_at,
        )


@dataclass(frozen=True, slots=True)
class EngineUse:
    """Use of an engine, as it says it; None where it does not say."""

    answers: bool = True
    # Percent.
    cache: int | None = None
    gpu: int | None = None
    # That a request waits in it, and how many it answers at once while some wait.
    wait_seconds: float | None = None
    at_once: int | None = None

    @classmethod
    def said(cls, load: ServingLoad) -> Self:
        """Returns the use that an engine says that answers."""
        has = load.HasField
        return cls(
            cache=load.cache_percent if has("cache_percent") else None,
            gpu=load.gpu_percent if has("gpu_percent") else None,
            wait_seconds=load.wait_seconds if has("wait_seconds") else None,
            at_once=load.requests_at_once if has("requests_at_once") else None,
        )


# Of an engine that does not answer, nothing is known.
AWAY = EngineUse(answers=False)


@dataclass(frozen=True, slots=True)
class ModelLoad:
    """Requests that gateways have open for a model, and its engines, those that start included."""

    requests: int
    # Of the requests, those in line for a busy engine, and how long the first of them has waited.
    in_line: int = 0
    line_seconds: float = 0.0
    # Of the requests, those in line that let others go first.
    background: int = 0
    engines: Sequence[EngineUse] = ()

    @property
    def pressing(self) -> int:
        """The requests that are to be answered without a wait."""
        return max(0, self.requests - self.background)

    @property
    def answering(self) -> int:
        """The engines that answer."""
        return sum(one.answers for one in self.engines)

    @property
    def wait_seconds(self) -> float:
        """Seconds that a request waits, in line and then in an engine."""
        waits = [one.wait_seconds for one in self.engines if one.wait_seconds is not None]
        return self.line_seconds + (sum(waits) / len(waits) if waits else 0.0)

    @property
    def at_once(self) -> float:
        """The requests that each engine answers at once, at least one; to be asked where some wait.

        Those in no line are at engines; of these, some may wait there.
        """
        found = (self.pressing - self.in_line) / self.answering
        return max(1.0, min(found, self.said_at_once or math.inf))

    @property
    def said_at_once(self) -> float:
        """The number that the engines say themselves, on average; 0 where none does."""
        said = [one.at_once for one in self.engines if one.at_once is not None]
        return sum(said) / len(said) if said else 0.0


def recommended(
    current: int, load: ModelLoad, bounds: ScaleBounds, *, at_once: float = math.inf
) -> int:
    """The engines that a load needs, whatever was before.

    `at_once` are the requests beyond which those of an engine would wait too long.
    """
    requests = load.requests
    if current and abs(requests / (current * bounds.target) - 1) <= TOLERANCE:
        wanted = current
    else:
        wanted = math.ceil(requests / bounds.target)
    further = max(
        _with_room(current, (one.cache for one in load.engines), bounds.target_cache),
        _with_room(current, (one.gpu for one in load.engines), bounds.target_gpu),
        math.ceil(load.pressing / at_once - _ROUNDING) if bounds.target_wait_seconds else 0,
    )
    # One more than there are requests would have none, whatever agents say.
    wanted = max(wanted, min(further, requests))
    return min(max(wanted, bounds.least), bounds.most)


def _with_room(current: int, uses: Iterable[int | None], target: int) -> int:
    """The engines of which each would be used to the target; 0 where nothing is known.

    What does not say counts as the HPA counts missing metrics: as idle where more may follow, and
    as used to the target where fewer may.
    """
    known = [one for one in uses if one is not None]
    if not (known and target):
        return 0
    used, unknown = sum(known), max(0, current - len(known))
    if used > (target + USE_TOLERANCE) * (len(known) + unknown):
        return math.ceil(used / target)
    used += USE_STEP * len(known) + target * unknown
    return min(current, math.ceil(used / target))


class Scaler:
    """The numbers of engines of one model over time; times are seconds of one clock."""

    def __init__(self, *, down_seconds: float = DOWN_SECONDS):
        self._down_seconds = down_seconds
        # When, and what was recommended then; the largest of those that count comes first.
        self._recommended: deque[tuple[float, int]] = deque()
        # When, and how many there were then.
        self._counts: deque[tuple[float, int]] = deque()
        # The requests that an engine answers at once before others wait too long, as far as that
        # was seen, and when the bounds were set for which it was.
        self._at_once = math.inf
        self._set_at = 0.0

    def decide(self, now: float, current: int, load: ModelLoad, bounds: ScaleBounds) -> int:
        """The engines that should run now, of which `current` do.

        More follow at once, as fast as may be; fewer once nothing else was recommended for a
        while. A scaler that is new, or was not asked for long, takes what runs for a
        recommendation.
        """
        self._forget(now)
        if not self._recommended:
            self._remember(now, current)
        self._learn(load, bounds)
        self._remember(now, recommended(current, load, bounds, at_once=self._at_once))
        wanted = self._recommended[0][1]
        wanted = min(wanted, self._fastest(now, current))
        return min(max(wanted, bounds.least), bounds.most)

    def _learn(self, load: ModelLoad, bounds: ScaleBounds) -> None:
        """Learns how many requests an engine answers at once, while too many wait or none.

        Once nobody waits any more this is not seen, and to forget it would end the engines that
        are the reason, again and again. It becomes more where engines have more without a wait.
        """
        if bounds.set_at != self._set_at:
            self._at_once, self._set_at = math.inf, bounds.set_at
        if not (bounds.target_wait_seconds and load.answering):
            return
        if load.line_seconds > bounds.target_wait_seconds:
            self._at_once = load.at_once
        elif load.wait_seconds > bounds.target_wait_seconds:
            # Engines tell a mean of some time: after a burst it says nothing of what is there now.
            said = max(1.0, load.said_at_once)
            if load.said_at_once and load.pressing >= said * load.answering:
                self._at_once = said
        else:
            self._at_once = max(self._at_once, load.pressing / load.answering)

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
        self, version: str, now: float, current: int, load: ModelLoad, bounds: ScaleBounds
    ) -> int:
        """The engines of a version that should run now."""
        if version not in self._by_version:
            self._by_version[version] = Scaler(down_seconds=self._down_seconds)
        return self._by_version[version].decide(now, current, load, bounds)

    def keep(self, versions: set[str]) -> None:
        """Forgets all others."""
        self._by_version = {one: it for one, it in self._by_version.items() if one in versions}
