"""`windlass secrets`: a project's credentials for other services."""

import sys

import typer

from windlass.cli.framework.calling import Call, Yes, command, group
from windlass.cli.framework.columns import field, moment
from windlass.cli.framework.failures import USAGE, Problem
from windlass.client.transport.urls import at

app = group("A project's credentials for other services; they can be replaced, never read.")
PATH = "/v1/secrets"
_COLUMNS = {"NAME": field("name"), "UPDATED": moment("updated_at")}


@command(app, "put")
def put(call: Call, name: str) -> None:
    """Stores a value, which is asked for or read from stdin, never given as an argument."""
    if sys.stdin.isatty():
        value = str(typer.prompt(f"Value of {name}", hide_input=True, err=True))
    else:
        # The line end of `echo` belongs to no secret.
        value = sys.stdin.read().removesuffix("\n")
    if not value:
        raise Problem("The value is empty.", USAGE)
    call.out.item(call.client.put(at(PATH, name), {"value": value}))


@command(app, "list")
def list_secrets(call: Call) -> None:
    """Lists names and dates."""
    call.out.items(list(call.client.pages(PATH)), _COLUMNS)


@command(app, "delete")
def delete(call: Call, name: str, yes: Yes = False) -> None:
    """Deletes one."""
    call.confirm(f"Delete secret {name}?", yes)
    call.client.delete(at(PATH, name))
    call.out.note(f"Deleted {name}.")
