"""`windlass orgs`."""

from typing import Annotated

import typer

from windlass.cli.framework.calling import Call, Yes, command, group
from windlass.cli.framework.columns import field, moment
from windlass.cli.framework.listing import All, Limit, show_list
from windlass.client.transport.urls import at

app = group("Organizations.")
PATH = "/v1/organizations"
Id = Annotated[str, typer.Argument(metavar="ORGANIZATION_ID")]
_COLUMNS = {"ID": field("id"), "TITLE": field("title"), "CREATED": moment("created_at")}


@command(app, "create")
def create(call: Call, title: str) -> None:
    """Makes an organization with a default project (platform administrators)."""
    call.out.item(call.client.post(PATH, {"title": title}))


@command(app, "list")
def list_organizations(call: Call, limit: Limit = 20, everything: All = False) -> None:
    """Lists yours, or all for a platform administrator, newest first."""
    show_list(call, call.client.pages(PATH), _COLUMNS, limit=limit, everything=everything)


@command(app, "get")
def get(call: Call, organization_id: Id) -> None:
    """Shows one."""
    call.out.item(call.client.get(at(PATH, organization_id)))


@command(app, "delete")
def delete(call: Call, organization_id: Id, yes: Yes = False) -> None:
    """Ends an organization: its keys stop working."""
    call.confirm(f"Delete organization {organization_id} and all that it has?", yes)
    call.client.delete(at(PATH, organization_id))
    call.out.note(f"Deleted {organization_id}.")
