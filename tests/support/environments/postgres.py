"""A real Postgres for a test session, and a fresh database in milliseconds."""

import asyncio
import secrets
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
from sqlalchemy.engine import make_url

from windlass.embedded_postgres import EmbeddedPostgres

# What a test writes need not survive the machine.
SETTINGS = {
    "fsync": "off",
    "full_page_writes": "off",
    "synchronous_commit": "off",
    "shared_buffers": "32MB",
    "autovacuum": "off",
}


@contextmanager
def reachable_folder() -> Iterator[Path]:
    """Yields a temporary folder that every user may enter, unlike pytest's own."""
    with tempfile.TemporaryDirectory(prefix="windlass-test-") as name:
        folder = Path(name).resolve()
        folder.chmod(0o711)
        yield folder


@contextmanager
def start_postgres() -> Iterator[str]:
    """Runs a server until the end of the block; yields its SQLAlchemy URL."""
    with reachable_folder() as folder:
        server = EmbeddedPostgres(folder / "postgres", settings=SETTINGS)
        url = asyncio.run(server.start())
        try:
            yield url
        finally:
            asyncio.run(server.stop())


def remove_database(data: Path) -> None:
    """Removes what the database of a data folder keeps outside of it when root started it."""
    marker = data / "postgres" / "moved-to"
    if marker.exists():
        home = marker.read_text().strip()
        for folder in (home, f"{home}.old"):
            shutil.rmtree(folder, ignore_errors=True)


def make_template(server_url: str, prepare: Callable[[str], object]) -> str:
    """Makes a database, lets `prepare(url)` fill it (migrations), and returns its name."""
    name = f"template_{secrets.token_hex(6)}"
    _administer(server_url, f"CREATE DATABASE {name}")
    prepare(database_url(server_url, name))
    return name


@contextmanager
def fresh_database(server_url: str, template: str = "template1") -> Iterator[str]:
    """Yields the URL of a new copy of `template`; drops it at the end, connections included."""
    name = f"test_{secrets.token_hex(6)}"
    # One copy of the files: with fsync off it is twice as fast as a copy through the log.
    _administer(server_url, f"CREATE DATABASE {name} TEMPLATE {template} STRATEGY file_copy")
    try:
        yield database_url(server_url, name)
    finally:
        _administer(server_url, f"DROP DATABASE {name} WITH (FORCE)")


def database_url(server_url: str, name: str) -> str:
    """Returns the URL of another database of the same server."""
    return make_url(server_url).set(database=name).render_as_string(hide_password=False)


def _administer(server_url: str, statement: str) -> None:
    with psycopg.connect(server_url.replace("+psycopg", ""), autocommit=True) as connection:
        connection.execute(statement)
