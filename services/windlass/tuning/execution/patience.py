"""Patience with a store or a database that is away: what was computed is not computed again."""

import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

from sqlalchemy.exc import DBAPIError

from windlass.core import telemetry
from windlass.core.backoff import Backoff
from windlass.core.objects import ObjectStoreError

log = telemetry.logger("tuning")
PATIENCE_SECONDS = 120.0

T = TypeVar("T")


async def patiently(call: Callable[[], Awaitable[T]]) -> T:
    """Returns what a repeatable call does, tried again while what it needs is away.

    Raises what it raised in the end.
    """
    began, backoff = time.monotonic(), Backoff(shortest=0.1, longest=5.0)
    while True:
        try:
            return await call()
        except (DBAPIError, ObjectStoreError) as error:
            is_away = getattr(error, "retryable", False) or isinstance(error, DBAPIError)
            if not is_away or time.monotonic() - began > PATIENCE_SECONDS:
                raise
            log.warning("tuning_waits", error=type(error).__name__)
        await backoff.pause()
