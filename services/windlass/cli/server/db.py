"""`windlass db`: dumps of the server's database."""

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from windlass.cli.framework.calling import Yes, group
from windlass.cli.framework.failures import REFUSED, USAGE, Problem, reported
from windlass.cli.server.config import ConfigFile, DataFolder, load

if TYPE_CHECKING:
    from windlass.core.config import Settings

app = group("The server's database, by the server's configuration.")
Dump = Annotated[Path, typer.Argument(metavar="FILE", dir_okay=False)]


@app.command("dump")
def dump(file: Dump, config: ConfigFile = None, data: DataFolder = None) -> None:
    """Writes the whole database to FILE; an embedded one must not be running."""
    import asyncio

    with reported():
        asyncio.run(_dump(load(config, {"data_dir": data}), file))
        typer.echo(f"Wrote {file}.", err=True)


@app.command("restore")
def restore(
    file: Annotated[Path, typer.Argument(metavar="FILE", dir_okay=False, exists=True)],
    config: ConfigFile = None,
    data: DataFolder = None,
    yes: Yes = False,
) -> None:
    """Replaces the whole database by a dump; stop every server first."""
    import asyncio

    with reported():
        settings = load(config, {"data_dir": data})
        if not yes:
            _confirm(file)
        asyncio.run(_restore(settings, file))
        typer.echo(f"Restored {file}.", err=True)


def _confirm(file: Path) -> None:
    question = f"Replace everything in the database by {file}?"
    if not sys.stdin.isatty():
        raise Problem(f"{question} There is no terminal to confirm on: pass --yes.", USAGE)
    if not typer.confirm(question, err=True):
        typer.echo("Aborted; nothing was changed.", err=True)
        raise typer.Exit(REFUSED)


async def _dump(settings: "Settings", file: Path) -> None:
    from windlass import embedded_postgres as postgres

    async with database_url(settings) as url:
        await postgres.dump(url, file)


async def _restore(settings: "Settings", file: Path) -> None:
    from windlass import embedded_postgres as postgres

    async with database_url(settings) as url:
        await postgres.restore(url, file)


@asynccontextmanager
async def database_url(settings: "Settings", *, attach: bool = False) -> AsyncIterator[str]:
    """The database of a configuration; with `attach` also one that a server is running."""
    from windlass.core.telemetry import configure_logging
    from windlass.embedded_postgres import EmbeddedPostgres, PostgresError

    configure_logging(level="WARNING")
    try:
        if url := settings.database.url.get_secret_value():
            yield url
            return
        if not settings.data_dir.is_dir():
            raise Problem(f"There is no data folder {settings.data_dir}.", USAGE)
        server = EmbeddedPostgres(settings.data_dir / "postgres")
        if attach and (running := server.running()):
            yield running
            return
        url = await server.start()
        try:
            yield url
        finally:
            await server.stop()
    except PostgresError as error:
        raise Problem(str(error)) from error
