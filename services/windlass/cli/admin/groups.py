"""`windlass groups`."""

from typing import Annotated

import typer

from windlass.cli.framework.calling import Call, Yes, command, group
from windlass.cli.framework.columns import field, moment
from windlass.cli.framework.listing import All, Limit, show_list
from windlass.client.transport.urls import at

app = group("Groups of the organization's members; give them roles by `windlass roles`.")
PATH = "/v1/organization/groups"
GroupId = Annotated[str, typer.Argument(metavar="GROUP_ID")]
User = Annotated[str, typer.Argument(metavar="USER_ID")]
_COLUMNS = {"ID": field("id"), "NAME": field("name"), "SINCE": moment("created_at")}
_MEMBERS = {"USER": field("id"), "NAME": field("name")}


@command(app, "create")
def create(call: Call, name: Annotated[str, typer.Argument(metavar="NAME")]) -> None:
    """Makes a group."""
    call.out.item(call.client.post(PATH, {"name": name}))


@command(app, "list")
def list_groups(call: Call, limit: Limit = 20, everything: All = False) -> None:
    """Lists groups."""
    show_list(call, call.client.pages(PATH), _COLUMNS, limit=limit, everything=everything)


@command(app, "rename")
def rename(
    call: Call, group_id: GroupId, name: Annotated[str, typer.Argument(metavar="NAME")]
) -> None:
    """Changes a group's name."""
    call.out.item(call.client.post(at(PATH, group_id), {"name": name}))


@command(app, "delete")
def delete(call: Call, group_id: GroupId, yes: Yes = False) -> None:
    """Deletes a group, and takes its roles from all who are in it."""
    call.confirm(f"Delete {group_id} and take its roles from all who are in it?", yes)
    call.client.delete(at(PATH, group_id))
    call.out.note(f"Deleted {group_id}.")


@command(app, "add")
def add(call: Call, group_id: GroupId, user_id: User) -> None:
    """Adds a member to a group."""
    call.client.post(at(PATH, group_id, "users"), {"user_id": user_id})
    call.out.note(f"{user_id} is in {group_id}.")


@command(app, "remove")
def remove(call: Call, group_id: GroupId, user_id: User) -> None:
    """Takes a member out of a group."""
    call.client.delete(at(PATH, group_id, "users", user_id))
    call.out.note(f"{user_id} is not in {group_id} any more.")


@command(app, "members")
def members(call: Call, group_id: GroupId, limit: Limit = 20, everything: All = False) -> None:
    """Lists who is in a group."""
    found = call.client.pages(at(PATH, group_id, "users"))
    show_list(call, found, _MEMBERS, limit=limit, everything=everything)
