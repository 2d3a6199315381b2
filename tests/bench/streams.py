"""Load of streams whose events are timed."""

import time
from array import array
from dataclasses import dataclass, field

from tests.bench.load import Connection, Load, percentile, repeat


@dataclass
class Pace:
    """Seconds of streams: from a request to its first event, and from one event to the next.

    Events that come together have no time between them. Gaps count only while it is `counting`.
    """

    first: list[float] = field(default_factory=list)
    gaps: "array[float]" = field(default_factory=lambda: array("d"))
    counting: bool = True

    def first_ms(self, share: float) -> float:
        """Milliseconds within which this share of the streams began."""
        return percentile(self.first, share) * 1000

    def gap_ms(self, share: float) -> float:
        """Milliseconds within which this share of the events followed the one before."""
        return percentile(self.gaps, share) * 1000


class _Stream(Connection):
    """Times the events of its streams."""

    def __init__(self, request: bytes, load: Load, deadline: float, *, pace: Pace):
        super().__init__(request, load, deadline)
        self._pace = pace
        self._last = 0.0

    def on_message_begin(self) -> None:
        self._last = 0.0

    def on_body(self, data: bytes) -> None:
        super().on_body(data)
        now = time.perf_counter()
        for _ in range(data.count(b"\n\n")):
            if not self._last:
                self._pace.first.append(now - self._began)
            elif self._pace.counting:
                self._pace.gaps.append(now - self._last)
            self._last = now


async def stream(
    port: int, request: bytes, *, connections: int, seconds: float, into: Pace
) -> None:
    """Keeps streams going, each again once it ends, and adds their times; raises RuntimeError."""

    def make(request: bytes, load: Load, deadline: float) -> Connection:
        return _Stream(request, load, deadline, pace=into)

    await repeat(port, request, connections=connections, seconds=seconds, make=make)
