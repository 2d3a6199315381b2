"""`windlass directory`."""

from typing import Annotated

import typer

from windlass.cli.framework.calling import Call, Yes, command, group

app = group("A directory that provisions the organization's people and groups by SCIM.")
PATH = "/v1/organization/directory"
NONE = "none"


@command(app, "show")
def show(call: Call) -> None:
    """Shows whether a directory provisions the organization."""
    call.out.item(call.client.get(PATH))


@command(app, "enable")
def enable(
    call: Call,
    role: Annotated[
        str,
        typer.Option(
            help="Role in the organization of people whom it provisions; `none`: they get no "
            "membership."
        ),
    ] = "organization_reader",
) -> None:
    """Lets a directory provision the organization."""
    call.out.item(call.client.put(PATH, {"role": None if role == NONE else role}))


@command(app, "disable")
def disable(call: Call, yes: Yes = False) -> None:
    """Ends that; people and groups stay as the organization's own."""
    call.confirm("Let no directory provision the organization any more?", yes)
    call.client.delete(PATH)
    call.out.note("No directory provisions the organization.")
