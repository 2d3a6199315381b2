"""The database's time, kept by a clock that nobody sets."""

import time

import pytest

from windlass.core import clock
from windlass.core.db import Database


async def test_the_database_is_believed_and_not_this_machine(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    true, wrong = time.time, time.time() - 3600
    monkeypatch.setattr(time, "time", lambda: wrong)
    monkeypatch.setattr(clock, "_origin", clock._origin - 3600)
    assert clock.now() < true() - 3000
    database = Database(database_url)
    try:
        await clock.synchronize(database)
    finally:
        await database.close()
    assert abs(clock.now() - true()) < 5
    assert abs(clock.now_ms() / 1000 - clock.now_seconds()) <= 1.1
