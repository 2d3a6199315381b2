"""Long work in the database leaves the processors to all others."""

import os
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection
from tests.support.waiting import until

from windlass.core.db import Database
from windlass.core.db.yielding import LEAST_PRIORITY, let_others_first


@pytest.fixture
async def database(database_url: str) -> AsyncIterator[Database]:
    made = Database(database_url)
    yield made
    await made.close()


async def process_of(connection: AsyncConnection) -> int:
    return int((await connection.execute(sa.text("SELECT pg_backend_pid()"))).scalar_one())


def priority(process: int) -> int:
    return os.getpriority(os.PRIO_PROCESS, process)


async def test_its_process_goes_last_and_serves_nobody_else(database: Database) -> None:
    async with database.autocommit() as others, database.patient() as connection:
        usual, patient = await process_of(others), await process_of(connection)
        assert (priority(usual), priority(patient)) == (0, LEAST_PRIORITY)
        group = Path(f"/proc/{patient}/autogroup")
        if group.exists():
            assert group.read_text().split()[-1] == str(LEAST_PRIORITY)
    await until(lambda: not Path(f"/proc/{patient}").exists())
    async with database.autocommit() as others:
        assert await process_of(others) == usual


@pytest.mark.parametrize("host", ["/run/postgres", "127.0.0.1", "db.example.com"])
def test_no_other_process_is_taken_for_one_of_the_database(host: str) -> None:
    """The number may be one of another machine, or of another container behind a shared socket."""
    connection: Any = SimpleNamespace(info=SimpleNamespace(host=host, backend_pid=os.getpid()))
    before = priority(0)
    assert not let_others_first(connection)
    assert priority(0) == before


def test_a_process_that_is_gone_is_no_failure() -> None:
    connection: Any = SimpleNamespace(info=SimpleNamespace(host="/run", backend_pid=2**22))
    assert not let_others_first(connection)
