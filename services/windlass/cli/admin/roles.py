"""`windlass roles`."""

from typing import Annotated, Any

import typer

from windlass.cli.admin.role_previews import Preview, show_preview
from windlass.cli.framework.calling import Call, Yes, command, group
from windlass.cli.framework.columns import field, moment
from windlass.cli.framework.listing import All, Limit, show_list
from windlass.cli.framework.values import seconds
from windlass.client.transport.urls import at

app = group("Roles of an organization's own, or of a project's with --in, made of permissions.")
Scope = Annotated[str, typer.Option("--in", help="Id of a project; default: the organization.")]
RoleId = Annotated[str, typer.Argument(metavar="ROLE_ID")]
Holder = Annotated[
    str, typer.Argument(metavar="HOLDER", help="Id of a member, or of a group: group_….")
]
Permissions = Annotated[
    list[str] | None,
    typer.Option("--permission", help="Permission, such as jobs.read; may be given several times."),
]
Description = Annotated[str | None, typer.Option(help="What the role is for.")]
_COLUMNS = {
    "ID": field("id"),
    "NAME": field("name"),
    "PERMISSIONS": lambda role: " ".join(role["permissions"]),
    "DESCRIPTION": field("description"),
}
_HELD = {
    "ID": field("id"),
    "NAME": field("name"),
    "PERMISSIONS": lambda role: " ".join(role["permissions"]),
    "BY": field("created_by"),
    "SINCE": moment("created_at"),
    "UNTIL": lambda role: moment("ends_at")(role["metadata"] or {"ends_at": None}),
}


def _where(scope: str) -> str:
    return at("/v1/projects", scope) if scope else "/v1/organization"


@command(app, "create")
def create(
    call: Call,
    name: Annotated[str, typer.Argument(metavar="NAME")],
    permissions: Permissions = None,
    description: Description = None,
    scope: Scope = "",
) -> None:
    """Makes a role of permissions."""
    body: dict[str, Any] = {"role_name": name, "permissions": permissions or []}
    if description is not None:
        body["description"] = description
    call.out.item(call.client.post(f"{_where(scope)}/roles", body))


@command(app, "list")
def list_roles(call: Call, scope: Scope = "", limit: Limit = 20, everything: All = False) -> None:
    """Lists roles."""
    roles = call.client.pages(f"{_where(scope)}/roles")
    show_list(call, roles, _COLUMNS, limit=limit, everything=everything)


@command(app, "update")
def update(
    call: Call,
    role_id: RoleId,
    name: Annotated[str | None, typer.Option(help="Another name.")] = None,
    permissions: Permissions = None,
    description: Description = None,
    scope: Scope = "",
    preview: Preview = False,
) -> None:
    """Changes a role; the keys of those who have it follow within a second."""
    if preview:
        if name is not None or description is not None or not permissions:
            raise typer.BadParameter("A preview is of other permissions alone.")
        show_preview(call, _where(scope), role_id, change="update", permissions=permissions)
        return
    given = {"role_name": name, "permissions": permissions, "description": description}
    body = {field: value for field, value in given.items() if value is not None}
    call.out.item(call.client.post(at(f"{_where(scope)}/roles", role_id), body))


@command(app, "delete")
def delete(
    call: Call, role_id: RoleId, scope: Scope = "", preview: Preview = False, yes: Yes = False
) -> None:
    """Deletes a role, and takes it from all who have it."""
    if preview:
        show_preview(call, _where(scope), role_id, change="delete")
        return
    call.confirm(f"Delete {role_id} and take it from all who have it?", yes)
    call.client.delete(at(f"{_where(scope)}/roles", role_id))
    call.out.note(f"Deleted {role_id}.")


@command(app, "elevation")
def elevation(
    call: Call,
    role_id: RoleId,
    askers: Annotated[
        str, typer.Option(help="Members who may ask for it: of the project, organization, or none.")
    ] = "",
    longest: Annotated[
        int,
        typer.Option(
            parser=seconds,
            metavar="DURATION",
            help="For which it may be asked at most.",
            show_default=False,
        ),
    ] = 3600,
    approvals: Annotated[int, typer.Option(help="Other members who must approve: 1 or 2.")] = 1,
    scope: Scope = "",
) -> None:
    """Shows, or sets with --askers, who may ask for a role; a change withdraws what is pending."""
    path = at(f"{_where(scope)}/roles", role_id, "elevation")
    if not askers:
        call.out.item(call.client.get(path))
        return
    body: dict[str, Any] = {"askers": askers}
    if askers != "none":
        body |= {"longest_seconds": longest, "approvals": approvals}
    call.out.item(call.client.put(path, body))


@command(app, "give")
def give(
    call: Call,
    role_id: RoleId,
    holder: Holder,
    scope: Scope = "",
    expires_in: Annotated[
        int,
        typer.Option(
            parser=seconds,
            metavar="DURATION",
            help="Time until it ends, such as 8h; default: no end.",
            show_default=False,
        ),
    ] = 0,
    preview: Preview = False,
) -> None:
    """Gives a role to a member or a group, or another end to one that was given."""
    if preview:
        until = {"expires_in_seconds": expires_in} if expires_in else {}
        given = {_kind(holder): holder, **until}
        show_preview(call, _where(scope), role_id, change="give", **given)
        return
    body: dict[str, Any] = {"role_id": role_id}
    if expires_in:
        body["expires_in_seconds"] = expires_in
    call.out.item(call.client.post(_held(scope, holder), body)["role"])


@command(app, "take")
def take(
    call: Call, role_id: RoleId, holder: Holder, scope: Scope = "", preview: Preview = False
) -> None:
    """Takes a role from a member or a group."""
    if preview:
        show_preview(call, _where(scope), role_id, change="take", **{_kind(holder): holder})
        return
    call.client.delete(at(_held(scope, holder), role_id))
    call.out.note(f"{holder} does not have {role_id} any more.")


@command(app, "of")
def of(
    call: Call, holder: Holder, scope: Scope = "", limit: Limit = 20, everything: All = False
) -> None:
    """Lists the roles that a member or a group was given."""
    roles = call.client.pages(_held(scope, holder))
    show_list(call, roles, _HELD, limit=limit, everything=everything)


def _held(scope: str, holder: str) -> str:
    kind = _kind(holder).removesuffix("_id")
    return at(f"{_where(scope)}/{kind}s", holder, "roles")


def _kind(holder: str) -> str:
    return "group_id" if holder.startswith("group_") else "user_id"
