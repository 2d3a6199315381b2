"""`windlass members`."""

from typing import Annotated

import typer

from windlass.cli.framework.calling import Call, Yes, command, group
from windlass.cli.framework.columns import field, moment
from windlass.cli.framework.listing import All, Limit, show_list
from windlass.client.transport.urls import at

app = group("Members of the organization, or of a project with --in.")
PATH = "/v1/members"
Scope = Annotated[str, typer.Option("--in", help="Id of a project; default: the organization.")]
User = Annotated[str, typer.Argument(metavar="USER_ID")]
_COLUMNS = {
    "USER": field("user_id"),
    "KIND": field("kind"),
    "ROLE": field("role"),
    "PROJECT": field("project_id"),
    "SINCE": moment("created_at"),
}


@command(app, "put")
def put(
    call: Call,
    user_id: User,
    role: Annotated[str, typer.Option(help="Role, such as project_member or organization_owner.")],
    scope: Scope = "",
    service_account: Annotated[
        bool, typer.Option("--service-account", help="The member is a program, not a person.")
    ] = False,
) -> None:
    """Adds a member, or changes the role of one."""
    body = {"user_id": user_id, "role": role, "project_id": scope}
    if service_account:
        body["kind"] = "service_account"
    call.out.item(call.client.put(PATH, body))


@command(app, "list")
def list_members(call: Call, scope: Scope = "", limit: Limit = 20, everything: All = False) -> None:
    """Lists members."""
    members = call.client.pages(PATH, project_id=scope)
    show_list(call, members, _COLUMNS, limit=limit, everything=everything)


@command(app, "remove")
def remove(call: Call, user_id: User, scope: Scope = "", yes: Yes = False) -> None:
    """Removes a member; its keys there stop working."""
    call.confirm(f"Remove {user_id} from {scope or 'the organization'}?", yes)
    call.client.delete(at(PATH, user_id), project_id=scope)
    call.out.note(f"Removed {user_id}.")
