"""`windlass db`: the server's database, its backups, and their restore."""

import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from windlass.cli.framework.calling import Yes, group
from windlass.cli.framework.failures import REFUSED, USAGE, Problem, reported
from windlass.cli.framework.output import Output, OutputFormat
from windlass.cli.server.config import ConfigFile, DataFolder, load
from windlass.client.display.text import printable

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from windlass.client.display.waiting import WaitingLine
    from windlass.core.config import Settings

app = group("The server's database and backups, by the server's configuration.")
Format = Annotated[OutputFormat, typer.Option("--output", "-o", help="Output format.")]
Backup = Annotated[Path, typer.Argument(metavar="FILE", dir_okay=False)]


@app.command("status")
def status(
    config: ConfigFile = None, data: DataFolder = None, output: Format = OutputFormat.TABLE
) -> None:
    """Shows server, size, connections and schema; exit code 1 unless this release can use it."""
    import asyncio

    with reported():
        settings = load(config, {"data_dir": data})
        problem = asyncio.run(_status(settings, Output(output, quiet=False, color=False)))
        if problem:
            raise Problem(problem)


@app.command("migrate")
def migrate(config: ConfigFile = None, data: DataFolder = None) -> None:
    """Brings the schema to this release's revision; servers of one release before may run."""
    import asyncio

    with reported():
        typer.echo(asyncio.run(_migrate(load(config, {"data_dir": data}))), err=True)


@app.command("backup")
def backup(
    file: Backup,
    config: ConfigFile = None,
    data: DataFolder = None,
    without_keys: Annotated[
        bool,
        typer.Option("--without-keys", help="Leave out the keys, which must be kept elsewhere."),
    ] = False,
    with_files: Annotated[
        bool, typer.Option("--with-files", help="Add files and models of the folder store.")
    ] = False,
) -> None:
    """Writes database and keys to FILE; a server may be running."""
    import asyncio

    with reported():
        settings = load(config, {"data_dir": data})
        if with_files and settings.objects.kind != "filesystem":
            raise Problem("--with-files: files and models are in a bucket, not in a folder.", USAGE)
        asyncio.run(_back_up(settings, file, keys=not without_keys, files=with_files))


@app.command("restore")
def restore(
    file: Annotated[Path, typer.Argument(metavar="FILE", dir_okay=False, exists=True)],
    config: ConfigFile = None,
    data: DataFolder = None,
    replace: Annotated[
        bool, typer.Option("--replace", help="Replace the installation that is there.")
    ] = False,
    yes: Yes = False,
) -> None:
    """Restores a backup into an empty installation; stop every server first."""
    import asyncio

    with reported():
        settings = load(config, {"data_dir": data})
        if replace and not yes:
            _confirm(file)
        asyncio.run(_restore(settings, file, replace))


def _confirm(file: Path) -> None:
    question = f"Replace everything in the database by {file}?"
    if not sys.stdin.isatty():
        raise Problem(f"{question} There is no terminal to confirm on: pass --yes.", USAGE)
    if not typer.confirm(question, err=True):
        typer.echo("Aborted; nothing was changed.", err=True)
        raise typer.Exit(REFUSED)


async def _status(settings: "Settings", out: Output) -> str:
    from windlass.client.display.text import human_size
    from windlass.maintenance.database import database_status

    with telling() as line:
        async with database(settings, line) as url:
            found = await database_status(url)
    size = found.size_bytes
    out.item(
        {
            "id": found.name,
            "server": f"PostgreSQL {found.server_version}",
            "size": human_size(size) if out.form is OutputFormat.TABLE else size,
            "connections": found.connections,
            "max_connections": found.max_connections,
            "schema": found.schema.current or "none",
            "release_schema": found.schema.head,
            "pending": list(found.schema.pending),
        }
    )
    return found.schema.problem()


async def _migrate(settings: "Settings") -> str:
    import asyncio

    from windlass.maintenance.database import database_status
    from windlass.migrations import migrate

    with telling() as line:
        async with database(settings, line, make=True) as url:
            before = (await database_status(url)).schema
            line.say("migrating the schema")
            await asyncio.to_thread(migrate, url)
    applied = len(before.pending)
    return f"The schema is at {before.head}: {applied or 'no'} revisions were applied."


async def _back_up(settings: "Settings", file: Path, *, keys: bool, files: bool) -> None:
    from windlass.maintenance.backup import KEYS, back_up

    with telling() as line:
        async with database(settings, line) as url:
            manifest = await back_up(settings, url, file, keys=keys, files=files, progress=line)
    typer.echo(f"Wrote {file}: {len(manifest.members)} files.", err=True)
    if any(name.startswith(KEYS) for name in manifest.members):
        typer.echo("Warning: it holds the keys of all secrets; keep it private.", err=True)
    for what in manifest.left_out:
        typer.echo(f"Not in it: {what}.", err=True)


async def _restore(settings: "Settings", file: Path, replace: bool) -> None:
    from windlass.maintenance.restore import restore

    with _in_words(), telling() as line:
        manifest, missing = await restore(settings, file, replace=replace, progress=line)
    typer.echo(f"Restored {file} of {printable(manifest.created_at)}.", err=True)
    for what in manifest.left_out:
        typer.echo(f"Not in it: {printable(what)}.", err=True)
    if missing:
        typer.echo(f"Warning: {missing}", err=True)


def telling() -> "AbstractContextManager[WaitingLine]":
    """A line on a terminal about work with a database."""
    return Output(OutputFormat.TABLE, quiet=False, color=False).waiting("opening the database")


@asynccontextmanager
async def database(
    settings: "Settings", line: "WaitingLine", *, make: bool = False
) -> AsyncIterator[str]:
    """The database of a configuration, also one that a server is running; raises Problem."""
    from windlass.maintenance.database import open_database

    with _in_words():
        line.say("opening the database")
        async with open_database(settings, make=make) as url:
            yield url


@contextmanager
def _in_words() -> Iterator[None]:
    """Raises Problem for whatever keeps a database from its work."""
    from windlass.core.db.waiting import DatabaseUnavailable
    from windlass.core.telemetry import configure_logging
    from windlass.embedded_postgres import PostgresError
    from windlass.maintenance.archive import BackupError
    from windlass.migrations import SchemaError

    configure_logging(level="WARNING")
    try:
        yield
    except (PostgresError, DatabaseUnavailable, SchemaError, BackupError) as error:
        raise Problem(str(error)) from error
