"""`windlass admin master-key`: which keys seal the installation's root key."""

import getpass
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import typer

from windlass.cli.framework.calling import group
from windlass.cli.framework.columns import Columns, field, moment
from windlass.cli.framework.failures import Problem, reported
from windlass.cli.framework.output import Output, OutputFormat
from windlass.cli.server.config import ConfigFile, DataFolder, load
from windlass.cli.server.db import Format, database, telling

if TYPE_CHECKING:
    from windlass.core.config import Settings

app = group("The master keys that seal the installation's root key.")
COLUMNS: Columns = {
    "MASTER KEY": field("id"),
    "SEALED": moment("sealed_at"),
    "CONFIGURED": lambda item: "yes" if item["configured"] else "",
}


@app.command("status")
def status(
    config: ConfigFile = None, data: DataFolder = None, output: Format = OutputFormat.TABLE
) -> None:
    """Lists the master keys that seal the root key; exit code 1 unless the configuration's does."""
    import asyncio

    with reported():
        settings = load(config, {"data_dir": data})
        asyncio.run(_status(settings, Output(output, quiet=False, color=False)))


@app.command("rotate")
def rotate(config: ConfigFile = None, data: DataFolder = None) -> None:
    """Seals the root key by the configured master key as well; servers may be running."""
    import asyncio

    with reported():
        name = asyncio.run(_rotate(load(config, {"data_dir": data})))
        typer.echo(f"The master key {name} seals the root key.")


@app.command("retire")
def retire(config: ConfigFile = None, data: DataFolder = None) -> None:
    """Makes the configured master key the only one; servers with another cannot start again."""
    import asyncio

    with reported():
        retired = asyncio.run(_retire(load(config, {"data_dir": data})))
        typer.echo(f"Retired: {', '.join(retired) or 'none'}.")


async def _status(settings: "Settings", out: Output) -> None:
    from windlass.maintenance.master_key import master_key_status

    async with _opened(settings) as url:
        found = await master_key_status(settings, url)
    out.items(
        [
            {
                "id": seal.master_key_id,
                "sealed_at": seal.created_at,
                "configured": seal.master_key_id == found.configured,
            }
            for seal in found.seals
        ],
        COLUMNS,
    )
    if all(seal.master_key_id != found.configured for seal in found.seals):
        raise Problem(
            f"the configured master key {found.configured} does not seal the root key, which "
            f"{found.opened_by} opened: run `windlass admin master-key rotate`"
        )


async def _rotate(settings: "Settings") -> str:
    from windlass.maintenance.master_key import rotate_master_key

    async with _opened(settings) as url:
        return await rotate_master_key(settings, url, by=_caller())


async def _retire(settings: "Settings") -> list[str]:
    from windlass.maintenance.master_key import retire_master_keys

    async with _opened(settings) as url:
        return list(await retire_master_keys(settings, url, by=_caller()))


@asynccontextmanager
async def _opened(settings: "Settings") -> AsyncIterator[str]:
    from windlass.core.keyring import KeyringError

    with telling() as line:
        async with database(settings, line) as url:
            try:
                yield url
            except (KeyringError, OSError) as error:
                raise Problem(str(error)) from error


def _caller() -> str:
    return f"local:{getpass.getuser()}"
