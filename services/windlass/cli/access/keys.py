"""`windlass keys`."""

from typing import Annotated

import typer

from windlass.cli.framework.calling import Call, Yes, command, group
from windlass.cli.framework.columns import Item, field, moment
from windlass.cli.framework.listing import All, Limit, show_list
from windlass.cli.framework.values import seconds
from windlass.client.transport.urls import at

app = group("API keys.")
PATH = "/v1/api_keys"
Scope = Annotated[
    str, typer.Option("--in", help="Id of a project; default: the scope of your own key.")
]


def _state(item: Item) -> str:
    return "revoked" if item.get("revoked_at") else "active"


_COLUMNS = {
    "ID": field("id"),
    "NAME": field("name"),
    "KEY": field("redacted_value"),
    "ROLE": field("role"),
    "PROJECT": field("project_id"),
    "OWNER": field("user_id"),
    "STATE": _state,
    "EXPIRES": moment("expires_at"),
    "LAST USED": moment("last_used_at"),
}


@command(app, "create")
def create(
    call: Call,
    name: str,
    role: Annotated[
        str, typer.Option(help="Role of the key; it may not grant more than yours.")
    ] = "project_member",
    scope: Scope = "",
    expires_in: Annotated[
        int,
        typer.Option(
            parser=seconds,
            metavar="DURATION",
            help="Lifetime, such as 30d; default: that of your own key.",
            show_default=False,
        ),
    ] = 0,
    owner: Annotated[
        str, typer.Option("--for", help="Member who owns the key; default: you.")
    ] = "",
) -> None:
    """Makes a key and shows its secret, this once; with -q nothing but the secret."""
    body = {"name": name, "role": role, "project_id": scope, "expires_in": expires_in}
    if owner:
        body["user_id"] = owner
    key = call.client.post(PATH, body)
    if call.out.quiet and call.out.is_table:
        typer.echo(key["value"])
        return
    call.out.item(key)
    call.out.note("Copy the value now: it is not shown again.")


@command(app, "list")
def list_keys(call: Call, scope: Scope = "", limit: Limit = 20, everything: All = False) -> None:
    """Lists keys, redacted, newest first."""
    keys = call.client.pages(PATH, project_id=scope)
    show_list(call, keys, _COLUMNS, limit=limit, everything=everything)


@command(app, "revoke")
def revoke(
    call: Call, key_id: Annotated[str, typer.Argument(metavar="KEY_ID")], yes: Yes = False
) -> None:
    """Ends a key, and those made with it, everywhere within a second."""
    call.confirm(f"Revoke key {key_id}?", yes)
    call.client.delete(at(PATH, key_id))
    call.out.note(f"Revoked {key_id}.")
