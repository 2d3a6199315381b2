"""`windlass erasures`, and the deletion of projects and organizations."""

import sys
from collections.abc import Callable
from typing import Annotated, Any

import typer

from windlass.cli.framework.calling import Call, command, group
from windlass.cli.framework.columns import field, moment
from windlass.cli.framework.failures import USAGE, Problem
from windlass.cli.framework.listing import All, Limit, show_list
from windlass.client.transport.urls import at

app = group("Erasures of projects and organizations that were deleted.")
PATH = "/v1/erasures"
Id = Annotated[str, typer.Argument(metavar="ERASURE_ID")]
Title = Annotated[
    str, typer.Option("--title", help="Title of what you delete, exactly as it is, to confirm.")
]
_COLUMNS = {
    "ID": field("id"),
    "ORGANIZATION": field("organization_id"),
    "PROJECT": field("project_id"),
    "STATE": field("state"),
    "ASKED": moment("asked_at"),
    "ERASED FROM": moment("erase_at"),
}


@command(app, "list")
def list_erasures(call: Call, limit: Limit = 20, everything: All = False) -> None:
    """Lists what is deleted or erased, newest first."""
    show_list(call, call.client.pages(PATH), _COLUMNS, limit=limit, everything=everything)


@command(app, "show")
def show(call: Call, erasure_id: Id) -> None:
    """Shows how far each service is with one."""
    call.out.item(call.client.get(at(PATH, erasure_id)))


@command(app, "report")
def report(call: Call, erasure_id: Id) -> None:
    """Prints the signed report (a JWS) of an erasure that is done."""
    found = call.client.get(at(PATH, erasure_id))
    if not found["report"]:
        raise Problem(f"{erasure_id} is {found['state']}: it has no report yet.", USAGE)
    sys.stdout.write(found["report"] + "\n")


def deletion(call: Call, path: str, title: str, find_title: Callable[[], str]) -> dict[str, Any]:
    """Deletes after a person typed the title, or `--title` gave it."""
    if not title:
        if not sys.stdin.isatty():
            raise Problem("There is no terminal to confirm on: pass --title.", USAGE)
        title = typer.prompt(f"Type {find_title()!r} to delete it and all that it has", err=True)
    made: dict[str, Any] = call.client.delete(path, title=title)
    return made
