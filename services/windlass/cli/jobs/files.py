"""`windlass files`."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from windlass.cli.framework import completion
from windlass.cli.framework.calling import Call, Yes, command, group
from windlass.cli.framework.columns import Item, field, moment, size
from windlass.cli.framework.failures import USAGE, Problem
from windlass.cli.framework.listing import All, Limit, show_list
from windlass.cli.framework.prefixes import file_id
from windlass.cli.framework.values import seconds
from windlass.cli.jobs import checking, conversion
from windlass.client.transport.urls import at

app = group("Files: data sets, and what jobs leave.")
PATH = "/v1/files"
FINE_TUNE = "fine-tune"
Id = Annotated[
    str,
    typer.Argument(
        metavar="FILE_ID", help="Id of a file, or a unique prefix.", autocompletion=completion.files
    ),
]
_COLUMNS = {
    "ID": field("id"),
    "FILENAME": field("filename"),
    "PURPOSE": field("purpose"),
    "SIZE": size("bytes"),
    "STATUS": field("status"),
    "CREATED": moment("created_at"),
}


@command(app, "upload")
def upload(
    call: Call,
    path: Annotated[Path, typer.Argument(exists=True, dir_okay=False, readable=True)],
    purpose: Annotated[str, typer.Option(help="Purpose of the file.")] = FINE_TUNE,
    expires_after: Annotated[
        int,
        typer.Option(
            parser=seconds,
            metavar="DURATION",
            help="Lifetime, such as 30d; at least 1h; default: without end.",
            show_default=False,
        ),
    ] = 0,
    format_: Annotated[
        conversion.SourceFormat | None,
        typer.Option("--format", help="Convert the file from this format first; auto detects it."),
    ] = None,
) -> None:
    """Uploads a file."""
    if format_ is None:
        call.out.item(send(call, path, purpose=purpose, expires_after=expires_after))
        return
    if purpose != FINE_TUNE:
        raise Problem(f"--format cannot be combined with --purpose {purpose}.", USAGE)
    with conversion.ready(call, path, format_) as (made, provenance):
        file = send(call, made, purpose=purpose, expires_after=expires_after, provenance=provenance)
    call.out.item(file)


command(app, "convert")(conversion.convert)
command(app, "check")(checking.check)


def send(
    call: Call,
    path: Path,
    *,
    purpose: str,
    expires_after: int = 0,
    provenance: Item | None = None,
) -> Item:
    """Uploads a file and shows how far it is; raises Problem for one that cannot be trained on."""
    if purpose == FINE_TUNE:
        checking.require_sound(call, path)
    return send_checked(
        call, path, purpose=purpose, expires_after=expires_after, provenance=provenance
    )


def send_checked(
    call: Call,
    path: Path,
    *,
    purpose: str,
    expires_after: int = 0,
    provenance: Item | None = None,
) -> Item:
    """Uploads a file as it is, and shows how far it is."""
    with call.out.transfer(path.name, path.stat().st_size) as progress:
        return call.client.files.upload(
            path,
            purpose=purpose,
            expires_after=expires_after,
            provenance=provenance,
            progress=progress,
        )


@command(app, "list")
def list_files(
    call: Call,
    purpose: Annotated[str, typer.Option(help="Only files with this purpose.")] = "",
    limit: Limit = 20,
    everything: All = False,
) -> None:
    """Lists files, newest first."""
    files = call.client.pages(PATH, purpose=purpose)
    show_list(call, files, _COLUMNS, limit=limit, everything=everything)


@command(app, "get")
def get(call: Call, file: Id) -> None:
    """Shows one."""
    call.out.item(call.client.get(at(PATH, file_id(call.client, file))))


@command(app, "content")
def content(call: Call, file: Id) -> None:
    """Prints a file's content."""
    for piece in call.client.files.content(file_id(call.client, file)):
        sys.stdout.buffer.write(piece)
    sys.stdout.buffer.flush()


@command(app, "download")
def download(
    call: Call,
    file: Id,
    to: Annotated[
        Path | None,
        typer.Option(help="Folder or file to write; default: the file's own name, here."),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite an existing file.")] = False,
) -> None:
    """Saves a file's content."""
    found = call.client.get(at(PATH, file_id(call.client, file)))
    target = _target(to, found)
    if target.exists() and not force:
        raise Problem(f"{target} already exists; pass --force to replace it.", USAGE)
    with call.out.transfer(target.name, found["bytes"]) as progress:
        call.client.files.download(found["id"], target, progress=progress)
    call.out.note(f"Saved {target}.")


def _target(to: Path | None, file: Item) -> Path:
    if to is not None and not to.is_dir():
        return to
    # The name is a stranger's: nothing of it may lead elsewhere.
    name = Path(file["filename"].replace("\\", "/")).name
    if name in ("", ".", "..") or name.startswith(".") or not name.isprintable():
        name = str(file["id"])
    return (to or Path()) / name


@command(app, "delete")
def delete(call: Call, file: Id, yes: Yes = False) -> None:
    """Deletes a file that no job needs."""
    found = file_id(call.client, file)
    call.confirm(f"Delete {found}?", yes)
    call.client.delete(at(PATH, found))
    call.out.note(f"Deleted {found}.")
