"""`windlass elevation`."""

from typing import Annotated, Any

import typer

from windlass.cli.framework.calling import Call, command, group
from windlass.cli.framework.columns import field, moment
from windlass.cli.framework.listing import All, Limit, show_list
from windlass.cli.framework.values import seconds
from windlass.client.transport.urls import at

app = group("Roles for a time, on request: a member asks, another approves.")
Scope = Annotated[str, typer.Option("--in", help="Id of a project; default: the organization.")]
Id = Annotated[str, typer.Argument(metavar="ELEVATION_ID")]
Comment = Annotated[str, typer.Option(help="Words to the decision.")]
_COLUMNS = {
    "ID": field("id"),
    "USER": field("user_id"),
    "ROLE": field("role_id"),
    "STATE": field("state"),
    "APPROVALS": lambda one: f"{len(one['approved_by'])}/{one['approvals']}",
    "SECONDS": field("seconds"),
    "UNTIL": moment("ends_at"),
    "ASKED": moment("created_at"),
    "REASON": field("reason"),
}
_ROLES = {
    "ID": field("id"),
    "NAME": field("name"),
    "PERMISSIONS": lambda role: " ".join(role["permissions"]),
    "LONGEST": field("longest_seconds"),
    "APPROVALS": field("approvals"),
}


def _where(scope: str) -> str:
    return at("/v1/projects", scope) if scope else "/v1/organization"


@command(app, "roles")
def roles(call: Call, scope: Scope = "", limit: Limit = 20, everything: All = False) -> None:
    """Lists the roles that you may ask for."""
    found = call.client.pages(f"{_where(scope)}/elevation_roles")
    show_list(call, found, _ROLES, limit=limit, everything=everything)


@command(app, "request")
def request(
    call: Call,
    role_id: Annotated[str, typer.Argument(metavar="ROLE_ID")],
    lasting: Annotated[
        int, typer.Option("--for", parser=seconds, metavar="DURATION", help="Such as 1h.")
    ],
    reason: Annotated[str, typer.Option(help="What you need it for.")],
    scope: Scope = "",
) -> None:
    """Asks for a role for a time; a repeat shows the request that is pending."""
    body = {"role_id": role_id, "seconds": lasting, "reason": reason}
    call.out.item(call.client.post(f"{_where(scope)}/elevations", body))


@command(app, "list")
def list_elevations(
    call: Call,
    scope: Scope = "",
    state: Annotated[
        str, typer.Option(help="pending, approved, denied, withdrawn, expired or ended.")
    ] = "",
    limit: Limit = 20,
    everything: All = False,
) -> None:
    """Lists what you asked for; what all asked for, where you may see members."""
    query: dict[str, Any] = {"state": state} if state else {}
    found = call.client.pages(f"{_where(scope)}/elevations", **query)
    show_list(call, found, _COLUMNS, limit=limit, everything=everything)


@command(app, "approve")
def approve(call: Call, elevation_id: Id, scope: Scope = "", comment: Comment = "") -> None:
    """Approves what another member asks for; the last approval that it needs gives the role."""
    _decide(call, scope, elevation_id, "approve", {"comment": comment})


@command(app, "deny")
def deny(call: Call, elevation_id: Id, scope: Scope = "", comment: Comment = "") -> None:
    """Denies what another member asks for."""
    _decide(call, scope, elevation_id, "deny", {"comment": comment})


@command(app, "withdraw")
def withdraw(call: Call, elevation_id: Id, scope: Scope = "") -> None:
    """Withdraws what you asked for."""
    _decide(call, scope, elevation_id, "withdraw")


@command(app, "end")
def end(call: Call, elevation_id: Id, scope: Scope = "") -> None:
    """Ends a role before its time: your own, or one that you may give."""
    _decide(call, scope, elevation_id, "end")


def _decide(
    call: Call, scope: str, elevation_id: str, verb: str, body: dict[str, Any] | None = None
) -> None:
    path = at(f"{_where(scope)}/elevations", elevation_id, verb)
    call.out.item(call.client.post(path, body))
