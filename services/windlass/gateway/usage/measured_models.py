"""Metrics of requests by model and project: of those asked lately, and of all others as one."""

import time
from collections import Counter, OrderedDict
from collections.abc import Callable

from windlass.gateway.usage.token_usage import TokenUsage
from windlass.metrics import gateway as metrics

# Pairs of a project and a model, about twenty series each; and of one project, so that none fills
# the page by itself.
MOST, MOST_OF_PROJECT = 300, 50
# A pair that nobody has asked for so long may give its place to another.
IDLE_SECONDS = 600.0
# No model's or project's name.
OTHERS = "(others)"
_REST = (OTHERS, OTHERS)
OUTCOMES = ("answered", "refused", "failed", "left")
_LEFT = 499


class ModelSeries:
    """The series of one pair."""

    def __init__(self, model: str, project_id: str):
        self._labels = (model, project_id)
        self.used_at = 0.0
        requests, tokens = metrics.MODEL_REQUESTS, metrics.MODEL_TOKENS
        self._requests = {one: requests.labels(*self._labels, one) for one in OUTCOMES}
        self._tokens = {
            one: tokens.labels(*self._labels, one) for one in ("prompt", "cached", "generated")
        }
        self._first_token = metrics.MODEL_FIRST_TOKEN_SECONDS.labels(*self._labels)

    def count(self, status: int, usage: TokenUsage, first_token_seconds: float | None) -> None:
        """Counts a request that an engine got."""
        self._requests[_outcome(status)].inc()
        self._tokens["prompt"].inc(usage.prompt_tokens)
        self._tokens["cached"].inc(usage.cached_tokens)
        self._tokens["generated"].inc(usage.completion_tokens)
        if first_token_seconds is not None:
            self._first_token.observe(first_token_seconds)

    def remove(self) -> None:
        """Takes the series off the page; they begin anew at 0 if there is another request."""
        for outcome in self._requests:
            metrics.MODEL_REQUESTS.remove(*self._labels, outcome)
        for what in self._tokens:
            metrics.MODEL_TOKENS.remove(*self._labels, what)
        metrics.MODEL_FIRST_TOKEN_SECONDS.remove(*self._labels)


class MeasuredModels:
    """Series of a bounded number of pairs, whatever tenants ask for."""

    def __init__(self, clock: Callable[[], float] = time.monotonic):
        self._clock = clock
        # The most recently used last.
        self._pairs: OrderedDict[tuple[str, str], ModelSeries] = OrderedDict()
        self._of_project = Counter[str]()

    def of(self, model: str, project_id: str) -> ModelSeries:
        """The series that a request counts in."""
        now = self._clock()
        found = self._known((model, project_id), now) or self._known((OTHERS, project_id), now)
        found = found or self._pairs.get(_REST) or self._added(_REST)
        found.used_at = now
        return found

    def _known(self, pair: tuple[str, str], now: float) -> ModelSeries | None:
        """The pair's series, made where there is room; None where there is none."""
        if (found := self._pairs.get(pair)) is not None:
            self._pairs.move_to_end(pair)
            return found
        return self._added(pair) if self._has_room(pair, now) else None

    def _added(self, pair: tuple[str, str]) -> ModelSeries:
        self._of_project[pair[1]] += 1
        made = self._pairs[pair] = ModelSeries(*pair)
        return made

    def _has_room(self, pair: tuple[str, str], now: float) -> bool:
        """Returns True if there is a place for one more pair, or an idle one's."""
        model, project_id = pair
        if model != OTHERS and self._of_project[project_id] >= MOST_OF_PROJECT:
            own = next(one for one in self._pairs if one[1] == project_id and one[0] != OTHERS)
            return self._forget_idle(own, now)
        if len(self._pairs) < MOST:
            return True
        oldest = next(one for one in self._pairs if one != _REST)
        return self._forget_idle(oldest, now)

    def _forget_idle(self, pair: tuple[str, str], now: float) -> bool:
        if now - self._pairs[pair].used_at < IDLE_SECONDS:
            return False
        self._pairs.pop(pair).remove()
        self._of_project[pair[1]] -= 1
        self._of_project += Counter()
        return True


def _outcome(status: int) -> str:
    if status == _LEFT:
        return "left"
    if status < 400:
        return "answered"
    return "refused" if status < 500 else "failed"


# As the metrics are: one page for a process.
MODELS = MeasuredModels()
