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
KeyId = Annotated[str, typer.Argument(metavar="KEY_ID")]
Scopes = Annotated[
    list[str] | None,
    typer.Option(
        "--scope",
        metavar="PERMISSION",
        help="Permission of the role that the key has; repeat it for several. `all`: all of them.",
        show_default=False,
    ),
]
Networks = Annotated[
    list[str] | None,
    typer.Option(
        "--network",
        metavar="NETWORK",
        help="Network that the key is taken from, such as 10.0.0.0/8; repeat it for several. "
        "`any`: any.",
        show_default=False,
    ),
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
    scopes: Scopes = None,
    networks: Networks = None,
) -> None:
    """Makes a key and shows its secret, this once; with -q nothing but the secret."""
    body = {"name": name, "role": role, "project_id": scope, "expires_in": expires_in}
    if owner:
        body["user_id"] = owner
    _show_secret(call, call.client.post(PATH, body | _narrowed(scopes, networks)))


def _narrowed(scopes: list[str] | None, networks: list[str] | None) -> dict[str, list[str]]:
    """Return what is said, for a body; `all` and `any` say that there is no bound."""
    said = {"scopes": (scopes, "all"), "networks": (networks, "any")}
    for name, (listed, none) in said.items():
        if listed and none in listed and len(listed) > 1:
            raise typer.BadParameter(f"{none!r} of {name} stands alone.")
    return {
        name: [one for one in listed if one != none]
        for name, (listed, none) in said.items()
        if listed
    }


def _show_secret(call: Call, key: Item) -> None:
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


@command(app, "update")
def update(
    call: Call,
    key_id: KeyId,
    name: Annotated[str | None, typer.Option(help="Another name.", show_default=False)] = None,
    scopes: Scopes = None,
    networks: Networks = None,
    expires_in: Annotated[
        int | None,
        typer.Option(
            parser=seconds,
            metavar="DURATION",
            help="Lifetime from now, such as 30d; 0: no end.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Changes a key, and narrows those made with it, everywhere within a second."""
    said = {"name": name, "expires_in": expires_in}
    body = {field: value for field, value in said.items() if value is not None}
    call.out.item(
        call.client.request("PATCH", at(PATH, key_id), json=body | _narrowed(scopes, networks))
    )


@command(app, "rotate")
def rotate(
    call: Call,
    key_id: KeyId,
    overlap: Annotated[
        int,
        typer.Option(
            parser=seconds,
            metavar="DURATION",
            help="How long the present secret answers too, such as 1d; default: not at all.",
            show_default=False,
        ),
    ] = 0,
) -> None:
    """Gives a key another secret and shows it, this once; with -q nothing but the secret."""
    _show_secret(call, call.client.post(at(PATH, key_id, "rotate"), {"overlap": overlap}))


@command(app, "revoke")
def revoke(call: Call, key_id: KeyId, yes: Yes = False) -> None:
    """Ends a key, and those made with it, everywhere within a second."""
    call.confirm(f"Revoke key {key_id}?", yes)
    call.client.delete(at(PATH, key_id))
    call.out.note(f"Revoked {key_id}.")
