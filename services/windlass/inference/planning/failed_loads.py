"""Adapters that engines could not load, and when they may try again; pure."""

from collections import defaultdict
from collections.abc import Collection
from typing import NamedTuple

from windlass.core.backoff import doubled

# The pause after the first failure; each further one doubles it.
PAUSE_SECONDS = 30.0
MAX_PAUSE_SECONDS = 600.0
# Of one engine; the oldest are forgotten.
MAX_REMEMBERED = 256


class _Failure(NamedTuple):
    # Of failures before it.
    number: int
    retry_at: float


class FailedLoads:
    """Failed loads by engine and adapter; a failure is remembered longer than its pause.

    Without it, an adapter that cannot be loaded would take the place of another each time that the
    place it failed in is given to the next one.
    """

    def __init__(self) -> None:
        self._found: dict[str, dict[str, _Failure]] = defaultdict(dict)

    def add(self, now: float, engine_id: str, version: str) -> None:
        """Notes one failure more, at a time in Unix seconds."""
        of_engine = self._found[engine_id]
        before = of_engine.pop(version, None)
        number = before.number + 1 if before else 0
        pause = doubled(PAUSE_SECONDS, number, longest=MAX_PAUSE_SECONDS)
        of_engine[version] = _Failure(number, now + pause)
        if len(of_engine) > MAX_REMEMBERED:
            del of_engine[next(iter(of_engine))]

    def remove(self, engine_id: str, version: str) -> None:
        """Forgets the failures of what was loaded."""
        if engine_id in self._found:
            self._found[engine_id].pop(version, None)

    def paused(self, engine_id: str, now: float) -> Collection[str]:
        """The adapters that an engine does not try again yet."""
        of_engine = self._found.get(engine_id, {})
        return {version for version, one in of_engine.items() if now < one.retry_at}

    def forget(self, now: float, engine_ids: Collection[str]) -> None:
        """Forgets other engines, and failures whose pause ended long ago."""
        for engine_id, of_engine in tuple(self._found.items()):
            recent = {
                version: one
                for version, one in of_engine.items()
                if engine_id in engine_ids and now - one.retry_at < MAX_PAUSE_SECONDS
            }
            if recent:
                self._found[engine_id] = recent
            else:
                del self._found[engine_id]
