"""`windlass invites`."""

from typing import Annotated

import typer

from windlass.cli.framework.calling import Call, command, group
from windlass.cli.framework.columns import field, moment
from windlass.cli.framework.failures import USAGE, Problem
from windlass.cli.framework.listing import All, Limit, show_list
from windlass.client.transport.urls import at

app = group("Invitations of people to sign in.")
PATH = "/v1/organization/invites"
InviteId = Annotated[str, typer.Argument(metavar="INVITE_ID")]
_COLUMNS = {
    "ID": field("id"),
    "EMAIL": field("email"),
    "ROLE": field("role"),
    "STATUS": field("status"),
    "UNTIL": moment("expires_at"),
    "ACCEPTED BY": field("accepted_by"),
    "MAILED": moment("mailed_at"),
    "PROBLEM": field("mail_error"),
}


@command(app, "create")
def create(
    call: Call,
    email: Annotated[
        str, typer.Option(help="Which their issuer must have verified; else whoever has the link.")
    ] = "",
    role: Annotated[str, typer.Option(help="In the organization: owner or reader.")] = "",
    member_of: Annotated[
        list[str],
        typer.Option("--in", metavar="PROJECT_ID[=owner]", help="Project to join; repeat."),
    ] = [],  # noqa: B006  # typer copies it
    member: Annotated[
        str, typer.Option(help="Id of a member who is here already, and signs in from then on.")
    ] = "",
    expires_in: Annotated[int, typer.Option(help="Seconds; 0: a week.")] = 0,
    mail: Annotated[
        bool | None,
        typer.Option(
            "--mail/--no-mail",
            help="Mail the link to the address; default: where this installation sends mail.",
        ),
    ] = None,
) -> None:
    """Makes an invite; its link is shown here, maybe mailed, and good once."""
    projects = []
    for text in member_of:
        project, _, named = text.partition("=")
        if named not in ("", "owner", "member"):
            raise Problem(f"{named!r} must be owner or member.", USAGE)
        projects.append({"id": project, "role": named or "member"})
    body = {
        "email": email,
        "role": role or None,
        "projects": projects,
        "user_id": member,
        "expires_in": expires_in,
        "mail": mail,
    }
    made = call.client.post(PATH, body)
    if made["link"].startswith("/"):
        made["link"] = call.connection.base_url.rstrip("/").removesuffix("/v1") + made["link"]
    call.out.item(made)


@command(app, "list")
def list_invites(call: Call, limit: Limit = 20, everything: All = False) -> None:
    """Lists invites."""
    show_list(call, call.client.pages(PATH), _COLUMNS, limit=limit, everything=everything)


@command(app, "delete")
def delete(call: Call, invite_id: InviteId) -> None:
    """Takes back an invite that nobody has accepted."""
    call.client.delete(at(PATH, invite_id))
    call.out.note(f"Deleted {invite_id}.")
