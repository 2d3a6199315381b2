"""The wait for a database that does not answer yet."""

import asyncio
import time

import psycopg

from windlass.core import telemetry
from windlass.core.backoff import Backoff
from windlass.core.config import libpq_url

log = telemetry.logger("database")
_CONNECT_SECONDS = 5
_TELL_SECONDS = 10.0
# What no wait mends; libpq gives no codes for a refused connection.
_FINAL = ("password authentication failed", "no pg_hba.conf entry", "does not exist", "certificate")


class DatabaseUnavailable(Exception):
    """The database does not answer, or refuses us; the message says how."""


async def wait_for_database(url: str, *, seconds: float) -> None:
    """Returns when the database takes our connection, and says every ten seconds that it waits.

    Raises DatabaseUnavailable after `seconds`, and at once for what no wait mends.
    """
    began, told = time.monotonic(), float("-inf")
    backoff = Backoff(shortest=0.2, longest=3.0)
    while True:
        error = await _attempt(url)
        if error is None:
            return
        waited = time.monotonic() - began
        if waited >= seconds or _is_final(error):
            raise DatabaseUnavailable(f"The database cannot be reached: {words(error)}") from error
        if time.monotonic() - told >= _TELL_SECONDS:
            told = time.monotonic()
            log.warning("database_awaited", error=words(error), gives_up_after=seconds)
        await asyncio.sleep(min(backoff.next(), max(0.0, seconds - waited)))


def words(error: BaseException) -> str:
    """Returns what a database said, on one line that ends with a full stop."""
    said = " ".join(str(error).split())
    return said if said.endswith((".", "?", "!")) else f"{said}."


async def _attempt(url: str) -> psycopg.Error | None:
    try:
        connection = await psycopg.AsyncConnection.connect(
            libpq_url(url), connect_timeout=_CONNECT_SECONDS
        )
    except psycopg.Error as error:
        return error
    await connection.close()
    return None


def _is_final(error: psycopg.Error) -> bool:
    return isinstance(error, psycopg.ProgrammingError) or any(one in str(error) for one in _FINAL)
