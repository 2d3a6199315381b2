"""The time of an installation, taken from its database and not from a machine's clock.

Processes judge each other's times: when to try again, when a token ends. So each measures how
far its own clock is off, when it starts and once a minute.
"""

import asyncio
import time
from functools import partial

import sqlalchemy as sa

from windlass.core import telemetry
from windlass.core.db import Database

SYNCHRONIZE_SECONDS = 60.0

log = telemetry.logger("clock")
# Set by nobody, unlike the time of day, and counts on while a machine sleeps where that is known.
_ticks = partial(time.clock_gettime, getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))
# The time at tick 0: by this machine, until the database is asked.
_origin = time.time() - _ticks()
_NOW = sa.select(sa.func.extract("epoch", sa.func.clock_timestamp()))


def now() -> float:
    """Unix seconds by the database's clock."""
    return _origin + _ticks()


def now_seconds() -> int:
    """Whole Unix seconds by the database's clock."""
    return int(now())


def now_ms() -> int:
    """Unix milliseconds by the database's clock."""
    return int(now() * 1000)


async def synchronize(database: Database) -> None:
    """Asks the database for the time."""
    global _origin
    asked = _ticks()
    async with database.autocommit() as connection:
        there = float((await connection.execute(_NOW)).scalar_one())
    # The answer was given halfway, as far as can be known.
    _origin = there - (asked + _ticks()) / 2


async def keep_synchronized(database: Database) -> None:
    """Asks again once a minute until cancelled; without an answer it counts on."""
    while True:
        await asyncio.sleep(SYNCHRONIZE_SECONDS)
        try:
            await synchronize(database)
        except Exception as error:
            log.warning("clock_sync_failed", exc_info=error)
