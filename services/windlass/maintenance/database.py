"""The database of a configuration, for work beside a server."""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import sqlalchemy as sa
from sqlalchemy.engine import make_url

from windlass.core.config import Settings
from windlass.core.db.waiting import wait_for_database
from windlass.embedded_postgres import EmbeddedPostgres
from windlass.migrations import SchemaState, state

_STATUS = """
    SELECT current_setting('server_version'), pg_database_size(current_database()),
    (SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()),
    current_setting('max_connections')::int
"""


@dataclass(frozen=True, slots=True)
class DatabaseStatus:
    """A database as it is, beside what this release needs of it."""

    name: str
    server_version: str
    size_bytes: int
    connections: int
    max_connections: int
    schema: SchemaState


@asynccontextmanager
async def open_database(
    settings: Settings, *, attach: bool = True, make: bool = False
) -> AsyncIterator[str]:
    """The URL of a database that answers; a private one is started where no server runs it.

    With `attach` the private database of a running server will do, with `make` a new one.
    Raises PostgresError, DatabaseUnavailable, or FileNotFoundError without a data folder.
    """
    if url := settings.database.driver_url:
        await wait_for_database(url, seconds=0)
        yield url
        return
    folder = settings.data_dir / "postgres"
    if not make and not settings.data_dir.is_dir():
        raise FileNotFoundError(0, "there is no data folder", str(settings.data_dir))
    if not make and not folder.is_dir():
        raise FileNotFoundError(0, "there is no database in this data folder", str(folder))
    make_data_folder(settings.data_dir)
    server = EmbeddedPostgres(folder)
    if attach and (running := server.running()):
        yield running
        return
    url = await server.start()
    try:
        yield url
    finally:
        await server.stop()


def make_data_folder(folder: Path) -> None:
    """Makes a data folder as `serve` does: private, and for root's database passable."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o711 if os.geteuid() == 0 else 0o700)


async def database_status(url: str) -> DatabaseStatus:
    """Asks the database, and compares its schema with this release's."""
    return await asyncio.to_thread(_status, url)


def _status(url: str) -> DatabaseStatus:
    engine = sa.create_engine(url)
    try:
        with engine.connect() as connection:
            version, size, connections, most = connection.execute(sa.text(_STATUS)).one()
        return DatabaseStatus(_name(url), version, size, connections, most, state(engine))
    finally:
        engine.dispose()


def _name(url: str) -> str:
    parsed = make_url(url)
    where = parsed.host or parsed.query.get("host", "")
    return f"{parsed.database} at {where}" + (f":{parsed.port}" if parsed.port else "")
