"""`windlass auth sessions`, `explain` and `end-session`."""

from typing import Annotated

import typer

from windlass.cli.framework.calling import Call, command
from windlass.cli.framework.columns import Item, field, moment
from windlass.cli.framework.listing import All, Limit, show_list
from windlass.client.transport.urls import at

PATH = "/v1/auth/sessions"
User = Annotated[
    str, typer.Option(metavar="USER_ID", help="Of a member, for who sees the whole organization.")
]
SessionId = Annotated[str, typer.Argument(metavar="SESSION_ID")]
_COLUMNS = {
    "ID": field("id"),
    "USER": field("user_id"),
    "CLIENT": field("client"),
    "SINCE": moment("created_at"),
    "LAST USED": moment("last_used_at"),
    "FROM": field("last_used_address"),
}


def _group(one: Item) -> str:
    by = f"by {', '.join(one['claims'])}" if one["claims"] else "put in by somebody"
    return f"{one['name']} ({one['group_id']}), {by}"


def _role(one: Item) -> str:
    where = f"in {one['project_id']}" if one["project_id"] else "in the organization"
    by = f"by the group {one['group_id']}" if one["group_id"] else "given"
    return f"{one['name']} {where}, {by if one['role_id'] else 'by membership'}"


def add_sessions(app: typer.Typer) -> None:
    """Adds the commands of sessions to `windlass auth`."""

    @command(app, "sessions")
    def sessions(call: Call, limit: Limit = 20, everything: All = False) -> None:
        """Lists who is signed in: yourself, and for owners all of the organization."""
        show_list(call, call.client.pages(PATH), _COLUMNS, limit=limit, everything=everything)

    @command(app, "explain")
    def explain(call: Call, user: User = "") -> None:
        """Says how you or a member signed in, and what groups and roles come from."""
        path = at("/v1/members", user, "explanation") if user else "/v1/auth/explanation"
        found = call.client.get(path)
        call.out.item(
            {
                "id": found["subject"] or None,
                "provider": found["provider_name"] or None,
                "acr": found["acr"] or None,
                "amr": found["amr"],
                "too_weak_for_owners": found["weakened"],
                "groups": [_group(one) for one in found["groups"]],
                "roles": [_role(one) for one in found["roles"]],
            }
        )

    @command(app, "end-session")
    def end_session(call: Call, session_id: SessionId) -> None:
        """Ends a session, everywhere within a second."""
        call.client.delete(at(PATH, session_id))
        call.out.note(f"Ended {session_id}.")
