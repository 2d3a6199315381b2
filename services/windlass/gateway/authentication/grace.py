"""Acceptance of known keys for some seconds of an outage, during which nobody can check them.

0 seconds, the default, accept none: see docs/adr/0035-known-keys-may-outlast-an-outage.md.
"""

import asyncio
import math
import time
from typing import Generic

from windlass.core import telemetry
from windlass.key_cache import KeyCache, KnownKey, Shown
from windlass.metrics.gateway import UNCHECKED, UNCHECKED_REQUESTS

log = telemetry.logger("gateway.keys")
# How long a request with a known key waits for an answer about it, and the pause until another
# asks: a key that was revoked meanwhile ends within a second of the first answer.
ASK_SECONDS = 1.0
PAUSE_SECONDS = 0.5
# Until streams that were lost are open again.
SETTLE_SECONDS = 5.0
# No outage of the database or of users is why these fail; all other parts wait for one of the two.
NEVER_EXCUSED = ("process", "objects")


class OutageGrace(Generic[Shown]):
    """Keys as they were known at the last beat, if that is less than `seconds` ago."""

    def __init__(self, keys: KeyCache[Shown], seconds: float):
        self._keys = keys
        self._seconds = seconds
        self._ask_at = self._excused_until = -math.inf
        self._accepted = 0
        # Fires at the end of the grace; None while keys are checked.
        self._end: asyncio.TimerHandle | None = None

    @property
    def left(self) -> float:
        """Seconds for which known keys go on without being checked; 0 or less: they do not."""
        return self._seconds - self._keys.silence

    def knows(self, shown: Shown) -> bool:
        """Returns True if the key would be accepted without an answer."""
        return self._known(shown) is not None

    def recall(self, shown: Shown) -> KnownKey | None:
        """A known key while nobody answers and it is too soon to ask again."""
        if time.monotonic() >= self._ask_at or self._keys.trusted:
            return None
        return self._accept(shown)

    def after_silence(self, shown: Shown) -> KnownKey | None:
        """A known key of which a lookup had no answer."""
        self._ask_at = time.monotonic() + PAUSE_SECONDS
        return self._accept(shown)

    def over(self) -> None:
        """Ends the grace, because changes of keys are heard of again."""
        if self._end is not None:
            self._end.cancel()
            self._finish("answered")

    def excuse(self, parts: dict[str, str]) -> dict[str, str]:
        """Readiness of the process in an outage: what can be done without is degraded."""
        now = time.monotonic()
        if parts["gateway.keys"] == "ok":
            if now >= self._excused_until:
                return parts
        elif self.left > 0:
            self._excused_until = now + SETTLE_SECONDS
        else:
            return parts
        return {
            part: said if said == "ok" or part in NEVER_EXCUSED else f"degraded: {said}"
            for part, said in parts.items()
        }

    def _known(self, shown: Shown) -> KnownKey | None:
        known = self._keys.last_known(shown) if self.left > 0 else None
        return None if known is None or known.is_over() else known

    def _accept(self, shown: Shown) -> KnownKey | None:
        known = self._known(shown)
        if known is None:
            return None
        if self._end is None:
            log.warning("key_grace_began", seconds=round(self.left, 1))
            UNCHECKED.set(1)
            loop = asyncio.get_running_loop()
            self._end = loop.call_later(self.left, self._finish, "expired")
        self._accepted += 1
        UNCHECKED_REQUESTS.inc()
        return known

    def _finish(self, reason: str) -> None:
        log.warning("key_grace_ended", reason=reason, requests=self._accepted)
        UNCHECKED.set(0)
        self._end, self._accepted = None, 0
