"""`windlass orgs`."""

from typing import Annotated

import typer

from windlass.cli.admin.erasures import Title, deletion
from windlass.cli.framework.calling import Call, command, group
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
def delete(call: Call, organization_id: Id, title: Title = "") -> None:
    """Ends an organization at once, and erases all that it has after the grace period."""
    path = at(PATH, organization_id)
    call.out.item(deletion(call, path, title, lambda: str(call.client.get(path)["title"])))


@command(app, "undelete")
def undelete(call: Call, organization_id: Id) -> None:
    """Makes a deleted organization live again, without its keys (platform administrators)."""
    call.out.item(call.client.post(at(PATH, organization_id, "undelete")))


@command(app, "hold")
def hold(call: Call, organization_id: Id) -> None:
    """Stops every erasure of an organization that has not begun (platform administrators)."""
    call.out.item(call.client.post(at(PATH, organization_id, "hold")))


@command(app, "release")
def release(call: Call, organization_id: Id) -> None:
    """Ends the hold on an organization (platform administrators)."""
    call.out.item(call.client.post(at(PATH, organization_id, "release")))
