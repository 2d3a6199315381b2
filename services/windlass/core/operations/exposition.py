"""The metrics of a process in the format of Prometheus."""

import asyncio
import time
from collections.abc import Awaitable, Callable

from prometheus_client import generate_latest

from windlass.core import telemetry
from windlass.metrics.process import SAMPLED

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
# However many scrape, and however often.
SAMPLE_SECONDS = 10.0
TAKE_SECONDS = 2.0

log = telemetry.logger("metrics")


class Exposition:
    """Renders all metrics. Those that need a query are samples, read only when somebody asks."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic):
        self._clock = clock
        self._samples: dict[str, Callable[[], Awaitable[None]]] = {}
        self._due: dict[str, float] = {}
        self._reading = asyncio.Lock()

    def sample(self, name: str, take: Callable[[], Awaitable[None]]) -> None:
        """Registers a function that reads values anew, called at most every `SAMPLE_SECONDS`.

        When it fails its gauges stay as they were, and its timestamp tells of what time.
        """
        self._samples[name] = take
        self._due[name] = 0.0

    async def render(self) -> bytes:
        """The page of all metrics, whose samples are as old as `SAMPLE_SECONDS` at most."""
        async with self._reading:
            now = self._clock()
            due = [name for name in self._samples if now >= self._due[name]]
            await asyncio.gather(*(self._take(name) for name in due))
        # Of some thousand lines, which would hold the loop for milliseconds.
        return await asyncio.to_thread(generate_latest)

    async def _take(self, name: str) -> None:
        self._due[name] = self._clock() + SAMPLE_SECONDS
        try:
            async with asyncio.timeout(TAKE_SECONDS):
                await self._samples[name]()
        except Exception as error:
            log.warning("sample_failed", sample=name, error=repr(error))
        else:
            SAMPLED.labels(name).set_to_current_time()
