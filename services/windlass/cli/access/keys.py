"""`windlass keys`."""

from typing import Annotated, Any

import typer

from windlass.cli.framework.calling import Call, Yes, command, group
from windlass.cli.framework.columns import Item, field, moment
from windlass.cli.framework.listing import All, Limit, show_list
from windlass.cli.framework.values import pairs, seconds
from windlass.client.transport.urls import at

app = group("API keys.")
policy = group("What an organization asks of its keys.")
app.add_typer(policy, name="policy")
PATH = "/v1/api_keys"
POLICY = "/v1/organization/key_policy"
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
Models = Annotated[
    list[str] | None,
    typer.Option(
        "--model",
        metavar="MODEL",
        help="Model that the key is for, or a beginning of names such as ft:llama-3:*; repeat it "
        "for several. `any`: any.",
        show_default=False,
    ),
]
Tags = Annotated[
    list[str] | None,
    typer.Option(
        "--tag",
        metavar="NAME=VALUE",
        help="Note by which keys are found; repeat it for several.",
        show_default=False,
    ),
]
Filter = Annotated[
    list[str] | None,
    typer.Option(
        "--tag",
        metavar="NAME=VALUE",
        help="Only keys that have it; repeat it for several.",
        show_default=False,
    ),
]
UpdatedTags = Annotated[
    list[str] | None,
    typer.Option(
        "--tag",
        metavar="NAME=VALUE",
        help="Note in place of all that the key has; repeat it for several. `none`: no notes.",
        show_default=False,
    ),
]


def _state(item: Item) -> str:
    return "revoked" if item.get("revoked_at") else "active"


def _tags(item: Item) -> str:
    return ", ".join(f"{name}={value}" for name, value in sorted(item.get("tags", {}).items()))


_COLUMNS = {
    "ID": field("id"),
    "NAME": field("name"),
    "KEY": field("redacted_value"),
    "ROLE": field("role"),
    "PROJECT": field("project_id"),
    "OWNER": field("user_id"),
    "STATE": _state,
    "TAGS": _tags,
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
    models: Models = None,
    tags: Tags = None,
) -> None:
    """Makes a key and shows its secret, this once; with -q nothing but the secret."""
    body = {"name": name, "role": role, "project_id": scope, "expires_in": expires_in}
    if owner:
        body["user_id"] = owner
    if tags:
        body["tags"] = pairs(tags)
    _show_secret(call, call.client.post(PATH, body | _narrowed(scopes, networks, models)))


def _narrowed(
    scopes: list[str] | None, networks: list[str] | None, models: list[str] | None
) -> dict[str, list[str]]:
    """Return what is said, for a body; `all` and `any` say that there is no bound."""
    said = {"scopes": (scopes, "all"), "networks": (networks, "any"), "models": (models, "any")}
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
def list_keys(
    call: Call, scope: Scope = "", tags: Filter = None, limit: Limit = 20, everything: All = False
) -> None:
    """Lists keys, redacted, newest first."""
    wanted: Item = {f"tags[{name}]": value for name, value in pairs(tags).items()}
    keys = call.client.pages(PATH, project_id=scope, **wanted)
    show_list(call, keys, _COLUMNS, limit=limit, everything=everything)


@command(app, "update")
def update(
    call: Call,
    key_id: KeyId,
    name: Annotated[str | None, typer.Option(help="Another name.", show_default=False)] = None,
    scopes: Scopes = None,
    networks: Networks = None,
    models: Models = None,
    tags: UpdatedTags = None,
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
    body: dict[str, Any] = {field: value for field, value in said.items() if value is not None}
    if tags:
        body["tags"] = {} if tags == ["none"] else pairs(tags)
    call.out.item(
        call.client.request(
            "PATCH", at(PATH, key_id), json=body | _narrowed(scopes, networks, models)
        )
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


@command(policy, "show")
def show_policy(call: Call) -> None:
    """Shows what the organization asks of its keys."""
    call.out.item(call.client.get(POLICY))


@command(policy, "set")
def set_policy(
    call: Call,
    longest_life: Annotated[
        int | None,
        typer.Option(
            parser=seconds,
            metavar="DURATION",
            help="Within which a key must end that is made or rotated, such as 90d; 0: never.",
            show_default=False,
        ),
    ] = None,
    service_accounts_only: Annotated[
        bool | None,
        typer.Option(
            "--service-accounts-only/--people-too",
            help="Whether only service accounts get keys.",
            show_default=False,
        ),
    ] = None,
    unused_days: Annotated[
        int | None,
        typer.Option(min=0, help="Days after which unused keys end; 0: never.", show_default=False),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Set nothing; only list the keys that would end.")
    ] = False,
    yes: Yes = False,
) -> None:
    """Sets what is named and leaves the rest, and lists the unused keys that end by it."""
    said = {
        "longest_life": longest_life,
        "service_accounts_only": service_accounts_only,
        "unused_days": unused_days,
    }
    body = {name: call.client.get(POLICY)[name] for name in said}
    body |= {name: value for name, value in said.items() if value is not None}
    ends = call.client.request("PUT", POLICY, json=body, params={"dry_run": True})
    keys, more = ends["ended_keys"], ends["has_more"]
    if dry_run:
        call.out.items(keys, _COLUMNS)
        call.out.note(f"{_number(keys, more=more)} would end. Nothing was set.")
        return
    if keys:
        call.confirm(f"End {_number(keys, more=more)} that nobody uses?", yes)
    call.out.item(call.client.request("PUT", POLICY, json=body))


def _number(keys: list[Item], *, more: bool) -> str:
    return f"More than {len(keys)} keys" if more else f"{len(keys)} keys"
