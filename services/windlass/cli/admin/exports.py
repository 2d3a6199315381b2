"""`windlass exports`."""

from pathlib import Path
from typing import Annotated

import typer

from windlass.cli.framework.calling import Call, command, group
from windlass.cli.framework.columns import field, moment
from windlass.cli.framework.failures import USAGE, Problem
from windlass.cli.framework.listing import All, Limit, show_list
from windlass.client.transport.urls import at

app = group("Exports of all that an organization has, or of what it knows of you.")
PATH = "/v1/exports"
Id = Annotated[str, typer.Argument(metavar="EXPORT_ID")]
_COLUMNS = {
    "ID": field("id"),
    "ABOUT": field("user_id"),
    "STATE": field("state"),
    "BYTES": field("bytes"),
    "ASKED": moment("asked_at"),
    "KEPT UNTIL": moment("expires_at"),
}


@command(app, "create")
def create(
    call: Call,
    personal: Annotated[
        bool, typer.Option("--personal", help="What the organization knows of you, and no more.")
    ] = False,
) -> None:
    """Begins an export of the organization, as its owner; ends the one before."""
    call.out.item(call.client.post(PATH, {"personal": personal}))


@command(app, "list")
def list_exports(call: Call, limit: Limit = 20, everything: All = False) -> None:
    """Lists the exports that you may have, newest first."""
    show_list(call, call.client.pages(PATH), _COLUMNS, limit=limit, everything=everything)


@command(app, "show")
def show(call: Call, export_id: Id) -> None:
    """Shows how far each service is with one."""
    call.out.item(call.client.get(at(PATH, export_id)))


@command(app, "download")
def download(
    call: Call,
    export_id: Id,
    to: Annotated[
        Path | None, typer.Option(help="Folder or file to write; default: EXPORT_ID.tar, here.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite an existing file.")] = False,
) -> None:
    """Saves the archive of one that is ready; goes on where it was broken off."""
    found = call.client.get(at(PATH, export_id))
    if found["state"] != "ready":
        raise Problem(f"{export_id} is {found['state']}: it cannot be downloaded yet.", USAGE)
    name = f"{found['id']}.tar"
    target = (to or Path()) / name if to is None or to.is_dir() else to
    if target.exists() and not force:
        raise Problem(f"{target} already exists; pass --force to replace it.", USAGE)
    with call.out.transfer(target.name, found["bytes"]) as progress:
        call.client.exports.download(found, target, progress=progress)
    call.out.note(f"Saved {target}.")
