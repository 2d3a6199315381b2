"""`windlass members`."""

from typing import Annotated

import typer

from windlass.cli.framework.calling import Call, Yes, command, group
from windlass.cli.framework.columns import aligned, cells, field, moment
from windlass.cli.framework.listing import All, Limit, show_list
from windlass.client.transport.urls import at

app = group("Members of the organization, or of a project with --in.")
PATH = "/v1/members"
Scope = Annotated[str, typer.Option("--in", help="Id of a project; default: the organization.")]
User = Annotated[str, typer.Argument(metavar="USER_ID")]
_COLUMNS = {
    "USER": field("user_id"),
    "NAME": lambda member: member["title"] or member.get("name", ""),
    "EMAIL": field("email"),
    "KIND": field("kind"),
    "ROLE": field("role"),
    "PROJECT": field("project_id"),
    "SINCE": moment("created_at"),
}
_KEYS = {
    "ID": field("id"),
    "NAME": field("name"),
    "OWNER": field("user_id"),
    "PROJECT": field("project_id"),
    "ROLE": field("role"),
    "LAST USED": moment("last_used_at"),
}
_AFFECTED = {**_KEYS, "BECOMES": lambda key: key["becomes"] or "ended"}


@command(app, "put")
def put(
    call: Call,
    user_id: User,
    role: Annotated[str, typer.Option(help="Role, such as project_member or organization_owner.")],
    scope: Scope = "",
    title: Annotated[str | None, typer.Option(help="Name by which people call the member.")] = None,
    service_account: Annotated[
        bool, typer.Option("--service-account", help="The member is a program, not a person.")
    ] = False,
    yes: Yes = False,
) -> None:
    """Adds a member, or changes the role of one; asks if keys of others could do less."""
    body = {"user_id": user_id, "role": role, "project_id": scope}
    if title is not None:
        body["title"] = title
    if service_account:
        body["kind"] = "service_account"
    if not yes and _warn(call, user_id, scope, role):
        call.confirm(f"Make {user_id} {role}?", yes)
    call.out.item(call.client.put(PATH, body))


@command(app, "list")
def list_members(call: Call, scope: Scope = "", limit: Limit = 20, everything: All = False) -> None:
    """Lists members."""
    members = call.client.pages(PATH, project_id=scope)
    show_list(call, members, _COLUMNS, limit=limit, everything=everything)


@command(app, "remove")
def remove(
    call: Call,
    user_id: User,
    scope: Scope = "",
    successor: Annotated[
        str,
        typer.Option(help="Id of who becomes owner of the projects that the member alone owns."),
    ] = "",
    yes: Yes = False,
) -> None:
    """Removes a member; its keys there end, and keys of others that rest on its rights."""
    if not yes:
        _warn(call, user_id, scope)
    call.confirm(f"Remove {user_id} from {scope or 'the organization'}?", yes)
    removed = call.client.delete(at(PATH, user_id), project_id=scope, successor=successor)
    call.out.note(f"Removed {user_id}.")
    if removed["ended_keys"]:
        call.out.note("Keys that ended with the membership, the newest:")
        call.out.items(removed["ended_keys"], _KEYS)


def _warn(call: Call, user_id: str, scope: str, role: str = "") -> bool:
    """Lists the keys of others that a change takes rights from; whether there are any."""
    path = at(PATH, user_id, "affected_keys")
    keys = call.client.pages(path, project_id=scope, role=role)
    others = [key for key in keys if key["user_id"] != user_id]
    if others:
        call.out.note(f"These keys of others rest on the rights of {user_id}:")
        for line in aligned([list(_AFFECTED), *cells(others, _AFFECTED)]):
            call.out.note(line)
        call.out.note(
            "To replace one, make another with `windlass keys create NAME --for OWNER`, deploy "
            "it, and revoke the old one."
        )
    return bool(others)
