"""`windlass orgs`."""

from typing import Annotated

import typer

from windlass.cli.admin.erasures import Title, deletion
from windlass.cli.framework.calling import Call, command, group
from windlass.cli.framework.columns import Item, field, moment
from windlass.cli.framework.listing import All, Limit, show_list
from windlass.client.transport.urls import at

app = group("Organizations.")
networks = group("Networks from which alone an organization's credentials are taken.")
app.add_typer(networks, name="networks")
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


@command(networks, "show")
def show_networks(call: Call, organization_id: Id) -> None:
    """Shows the networks; none: anywhere."""
    call.out.item(call.client.get(at(PATH, organization_id, "networks")))


@command(networks, "set")
def set_networks(
    call: Call,
    organization_id: Id,
    listed: Annotated[
        list[str],
        typer.Argument(
            metavar="NETWORK...", help="Such as 203.0.113.0/24 or 2001:db8::/32. `any`: anywhere."
        ),
    ],
    force: Annotated[
        bool,
        typer.Option(
            "--force", help="Whatever your own address; for administrators of the platform."
        ),
    ] = False,
) -> None:
    """Has keys, sessions and tokens taken from these networks alone, within a second (owners)."""
    if "any" in listed and len(listed) > 1:
        raise typer.BadParameter("'any' stands alone.")
    body: Item = {"networks": [one for one in listed if one != "any"]}
    body |= {"force": True} if force else {}
    path = at(PATH, organization_id, "networks")
    call.out.item(call.client.request("PUT", path, json=body))
