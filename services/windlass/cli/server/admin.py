"""`windlass admin`: what whoever owns the data folder or the database may do without a key."""

import getpass
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from windlass.cli.framework.calling import group
from windlass.cli.framework.failures import Problem, reported
from windlass.cli.server.config import ConfigFile, DataFolder, load

if TYPE_CHECKING:
    from windlass.core.config import Settings

app = group("On the server's machine, by the server's configuration.")
ACTION = "windlass.admin/recover"


@app.command("recover")
def recover(
    config: ConfigFile = None,
    data: DataFolder = None,
    user: Annotated[
        str, typer.Option(metavar="USER_ID", help="Who becomes administrator of the platform.")
    ] = "owner",
    output: Annotated[
        Path | None, typer.Option(dir_okay=False, help="Where the key goes; else DATA/owner.key.")
    ] = None,
) -> None:
    """Makes a new owner's key when all others are lost; a server may be running."""
    import asyncio

    with reported():
        settings = load(config, {"data_dir": data})
        path = output or settings.data_dir / "owner.key"
        key_id = asyncio.run(_recover(settings, user, path))
        typer.echo(f"Wrote {path}: the key {key_id} of {user}, administrator of the platform.")


async def _recover(settings: "Settings", user: str, path: Path) -> str:
    import asyncio

    from windlass.cli.server.db import database_url
    from windlass.core.db import Database
    from windlass.core.errors import AppError
    from windlass.core.ids import new_id
    from windlass.migrations import migrate
    from windlass.rbac.store import AuditStore
    from windlass.users.domain import valid_user
    from windlass.users.recovery import recover as make

    async with database_url(settings, attach=True) as url:
        if settings.database.migrate:
            await asyncio.to_thread(migrate, url)
        database = Database(url, pool_size=2)
        try:
            key = await make(
                database,
                user_id=valid_user(user),
                path=path,
                key_prefix=settings.auth.key_prefix,
            )
            row = {
                "id": new_id("audit_"),
                "at_ms": int(time.time() * 1000),
                "organization_id": key.organization_id,
                "project_id": "",
                "user_id": f"local:{getpass.getuser()}",
                "key_id": key.id,
                "action": ACTION,
                "resource": user,
                "outcome": "OK",
                "request_id": "",
            }
            await AuditStore(database).append([row])
        except AppError as error:
            raise Problem(error.message) from error
        finally:
            await database.close()
    return key.id
