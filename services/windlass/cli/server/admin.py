"""`windlass admin`: what the owner of the data folder or the database may do without a key."""

import getpass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from windlass.cli.framework.calling import group
from windlass.cli.framework.failures import Problem, reported
from windlass.cli.server import master_key
from windlass.cli.server.config import ConfigFile, DataFolder, load

if TYPE_CHECKING:
    from windlass.core.config import Settings

app = group("On the server's machine, by the server's configuration.")
app.add_typer(master_key.app, name="master-key")


@app.command("recover")
def recover(
    config: ConfigFile = None,
    data: DataFolder = None,
    user: Annotated[
        str, typer.Option(metavar="USER_ID", help="User who becomes administrator of the platform.")
    ] = "owner",
    output: Annotated[
        Path | None,
        typer.Option(
            dir_okay=False, help="File to write the key to; default: owner.key in the data folder."
        ),
    ] = None,
    without_certificates: Annotated[
        bool,
        typer.Option(
            "--without-certificates", help="Demand no client certificates of the organization."
        ),
    ] = False,
    without_networks: Annotated[
        bool,
        typer.Option(
            "--without-networks", help="Take the organization's credentials from anywhere."
        ),
    ] = False,
) -> None:
    """Makes a new owner's key when all others are lost; a server may be running."""
    import asyncio

    with reported():
        settings = load(config, {"data_dir": data})
        path = output or settings.data_dir / "owner.key"
        key_id = asyncio.run(
            _recover(
                settings,
                user,
                path,
                without_certificates=without_certificates,
                without_networks=without_networks,
            )
        )
        typer.echo(f"Wrote {path}: the key {key_id} of {user}, administrator of the platform.")


async def _recover(
    settings: "Settings",
    user: str,
    path: Path,
    *,
    without_certificates: bool,
    without_networks: bool,
) -> str:
    from windlass.cli.server.db import database, telling
    from windlass.core.errors import AppError
    from windlass.recovery import recover_owner

    # A data folder that was never served gets its database and its owner.
    with telling() as line:
        async with database(settings, line, make=settings.data_dir.is_dir()) as url:
            try:
                return await recover_owner(
                    settings,
                    url,
                    user_id=user,
                    path=path,
                    by=f"local:{getpass.getuser()}",
                    without_certificates=without_certificates,
                    without_networks=without_networks,
                )
            except AppError as error:
                raise Problem(error.message) from error
