"""Rate limits of a project: requests and tokens per minute, and requests at once.

Token buckets in this process's memory: with several gateways each grants the
whole limit. A request reserves the tokens that it may use and settles at its end.
"""

import time
from collections import OrderedDict
from dataclasses import dataclass

from windlass.core.config import Limits
from windlass.gateway.errors import HttpError

Headers = list[tuple[bytes, bytes]]
PROJECTS = 100_000


@dataclass(slots=True)
class Bucket:
    """Refills to `size` over a minute; may be overdrawn by what a settlement adds."""

    size: int
    level: float
    at: float

    def refill(self, now: float) -> None:
        """Adds what the time since the last call is worth."""
        self.level = min(self.size, self.level + (now - self.at) * self.size / 60)
        self.at = now

    def seconds_until(self, amount: float) -> float:
        """How long until `amount` is there."""
        return max(0.0, (min(amount, self.size) - self.level) * 60 / self.size)


class ProjectLimits:
    """What one project has left."""

    __slots__ = ("_concurrent", "_requests", "_tokens", "active")

    def __init__(self, limits: Limits, now: float):
        self._requests = Bucket(limits.requests_per_minute, limits.requests_per_minute, now)
        self._tokens = Bucket(limits.tokens_per_minute, limits.tokens_per_minute, now)
        self._concurrent = limits.concurrent_requests
        self.active = 0

    def reservation(self, tokens: int) -> int:
        """What a request that may use `tokens` has to reserve: never more than a minute's worth."""
        return min(tokens, self._tokens.size)

    def enter(self, tokens: int, now: float) -> Headers:
        """Takes one request and its tokens; answers the headers that say what is left.

        Raises HttpError 429.
        """
        requests, reserve = self._requests, self._tokens
        if requests.size:
            requests.refill(now)
            if requests.level < 1:
                raise self._refusal("requests", requests, 1)
        if reserve.size:
            reserve.refill(now)
            if reserve.level < tokens:
                raise self._refusal("tokens", reserve, tokens)
        if self._concurrent and self.active >= self._concurrent:
            message = f"At most {self._concurrent} requests of this project may run at once."
            raise _too_many(message, 1, {})
        if requests.size:
            requests.level -= 1
        reserve.level -= tokens
        self.active += 1
        return self._headers()

    def leave(self, reserved: int, used: int) -> None:
        """Ends a request that used that many tokens."""
        self.active -= 1
        bucket = self._tokens
        if bucket.size:
            bucket.level = min(bucket.size, bucket.level + reserved - used)

    def _headers(self) -> Headers:
        headers: Headers = []
        for bucket, names in ((self._requests, _REQUESTS), (self._tokens, _TOKENS)):
            if bucket.size:
                headers += (
                    (names[0], b"%d" % bucket.size),
                    (names[1], b"%d" % max(0.0, bucket.level)),
                    (names[2], duration(bucket.seconds_until(bucket.size))),
                )
        return headers

    def _refusal(self, what: str, bucket: Bucket, wanted: float) -> HttpError:
        wait = bucket.seconds_until(wanted)
        message = (
            f"Rate limit reached for {what} per minute (limit {bucket.size}). "
            f"Please try again in {duration(wait).decode()}."
        )
        said = {name.decode(): value.decode() for name, value in self._headers()}
        return _too_many(message, wait, said)


_REQUESTS, _TOKENS = (
    tuple(f"x-ratelimit-{part}-{what}".encode() for part in ("limit", "remaining", "reset"))
    for what in ("requests", "tokens")
)


def _too_many(message: str, wait: float, headers: dict[str, str]) -> HttpError:
    headers["retry-after"] = str(max(1, round(wait + 0.5)))
    headers["retry-after-ms"] = str(max(1, int(wait * 1000)))
    return HttpError(
        429, message, kind="rate_limit_error", code="rate_limit_exceeded", headers=headers
    )


def duration(seconds: float) -> bytes:
    """A span as OpenAI writes it: `12ms`, `1.5s`, `6m0s`."""
    if seconds < 1:
        return b"%dms" % (seconds * 1000)
    if seconds < 60:
        return b"%gs" % round(seconds, 3)
    return b"%dm%ds" % divmod(int(seconds), 60)


class Limiter:
    """The limits of every project that called lately."""

    def __init__(self, limits: Limits):
        self._limits = limits
        self.enabled = bool(
            limits.requests_per_minute or limits.tokens_per_minute or limits.concurrent_requests
        )
        self._projects: OrderedDict[str, ProjectLimits] = OrderedDict()

    def of(self, project_id: str) -> ProjectLimits:
        """The project's limits."""
        found = self._projects.get(project_id)
        if found is None:
            found = self._projects[project_id] = ProjectLimits(self._limits, time.monotonic())
            if len(self._projects) > PROJECTS:
                self._drop_idle()
        else:
            self._projects.move_to_end(project_id)
        return found

    def _drop_idle(self) -> None:
        name, oldest = self._projects.popitem(last=False)
        if oldest.active:
            self._projects[name] = oldest
