"""`windlass identity-providers`."""

import sys
from typing import Annotated, Any

import typer

from windlass.cli.framework.calling import Call, Yes, command, group
from windlass.cli.framework.columns import field, moment
from windlass.cli.framework.failures import USAGE, Problem
from windlass.cli.framework.listing import All, Limit, show_list
from windlass.client.transport.urls import at

app = group("Issuers of OpenID Connect by which people sign in.")
PATH = "/v1/organization/identity_providers"
POLICY = "/v1/organization/sign_in_policy"
ProviderId = Annotated[str, typer.Argument(metavar="PROVIDER_ID")]
Domains = Annotated[
    list[str], typer.Option("--domain", help="Of verified addresses that may come in; repeat.")
]
DefaultRole = Annotated[
    str, typer.Option(help="Of new people, such as organization_reader; else they need an invite.")
]
Claim = Annotated[str, typer.Option(help="Claim that names a person's groups.")]
Groups = Annotated[
    list[str],
    typer.Option("--group", metavar="VALUE=GROUP_ID", help="Group of a value; repeat."),
]
PersonClaim = Annotated[
    str, typer.Option(help="Claim with the userName or externalId of a directory's people.")
]
_COLUMNS = {
    "ID": field("id"),
    "NAME": field("name"),
    "ISSUER": field("issuer"),
    "OF": lambda one: one["organization_id"] or "installation",
    "ENABLED": field("enabled"),
    "SINCE": moment("created_at"),
}


@command(app, "create")
def create(
    call: Call,
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="What people read when they sign in.")
    ],
    issuer: Annotated[str, typer.Option(help="URL of the issuer.")],
    client_id: Annotated[str, typer.Option(help="Name of Windlass there.")],
    domain: Domains = [],  # noqa: B006  # typer copies it
    default_role: DefaultRole = "",
    groups_claim: Claim = "",
    group: Groups = [],  # noqa: B006
    person_claim: PersonClaim = "",
    public: Annotated[
        bool, typer.Option("--public", help="The client has no secret; else it is asked for.")
    ] = False,
    installation: Annotated[
        bool, typer.Option("--installation", help="For every organization (operators).")
    ] = False,
) -> None:
    """Has people sign in by an issuer; the client's secret is asked for, or read from stdin."""
    body = {
        "name": name,
        "issuer": issuer,
        "client_id": client_id,
        "client_secret": "" if public else _secret(),
        "domains": domain,
        "default_role": default_role,
        "groups_claim": groups_claim,
        "groups": _pairs(group),
        "person_claim": person_claim,
        "of_installation": installation,
    }
    call.out.item(call.client.post(PATH, body))


@command(app, "list")
def list_providers(call: Call, limit: Limit = 20, everything: All = False) -> None:
    """Lists the organization's, and those of the installation."""
    show_list(call, call.client.pages(PATH), _COLUMNS, limit=limit, everything=everything)


@command(app, "show")
def show(call: Call, provider_id: ProviderId) -> None:
    """Shows one."""
    call.out.item(call.client.get(at(PATH, provider_id)))


@command(app, "update")
def update(
    call: Call,
    provider_id: ProviderId,
    name: Annotated[str | None, typer.Option(help="Another name.")] = None,
    domain: Annotated[
        list[str] | None, typer.Option("--domain", help="In place of those that it has; repeat.")
    ] = None,
    default_role: Annotated[str | None, typer.Option(help="Of new people.")] = None,
    groups_claim: Annotated[str | None, typer.Option(help="Claim of groups.")] = None,
    group: Annotated[
        list[str] | None,
        typer.Option("--group", metavar="VALUE=GROUP_ID", help="In place of all; repeat."),
    ] = None,
    person_claim: Annotated[
        str | None, typer.Option(help="Claim of the directory's people.")
    ] = None,
    enabled: Annotated[
        bool | None, typer.Option("--enable/--disable", help="Sessions by one that is not end.")
    ] = None,
    new_secret: Annotated[
        bool, typer.Option("--secret", help="Ask for the client's secret, or read it from stdin.")
    ] = False,
) -> None:
    """Changes one; its issuer stays."""
    said: dict[str, Any] = {
        "name": name,
        "domains": domain or None,
        "default_role": default_role,
        "groups_claim": groups_claim,
        "groups": _pairs(group) if group else None,
        "person_claim": person_claim,
        "enabled": enabled,
        "client_secret": _secret() if new_secret else None,
    }
    body = {key: value for key, value in said.items() if value is not None}
    call.out.item(call.client.post(at(PATH, provider_id), body))


@command(app, "delete")
def delete(call: Call, provider_id: ProviderId, yes: Yes = False) -> None:
    """Deletes one, and ends the sessions of all who signed in by it."""
    call.confirm(f"Delete {provider_id} and end the sessions by it?", yes)
    call.client.delete(at(PATH, provider_id))
    call.out.note(f"Deleted {provider_id}.")


@command(app, "policy")
def policy(call: Call) -> None:
    """Shows what the organization asks of sign-ins."""
    call.out.item(call.client.get(POLICY))


@command(app, "set-policy")
def set_policy(
    call: Call,
    required: Annotated[
        bool, typer.Option("--required", help="Only the organization's own issuers let people in.")
    ] = False,
    acr: Annotated[
        list[str], typer.Option("--acr", help="Of administrators, as the issuer has it; repeat.")
    ] = [],  # noqa: B006  # typer copies it
    amr: Annotated[
        list[str], typer.Option("--amr", help="Of administrators, such as mfa; repeat.")
    ] = [],  # noqa: B006
    max_age: Annotated[
        int, typer.Option(help="Seconds since administrators have shown who they are; 0: any.")
    ] = 0,
    fresh_max_age: Annotated[
        int,
        typer.Option(help="Seconds since anybody has, before a dangerous step; 0: the server's."),
    ] = 0,
) -> None:
    """Sets the whole policy; what is not named asks for nothing."""
    body = {
        "required": required,
        "administrators_acr": acr,
        "administrators_amr": amr,
        "administrators_max_age": max_age,
        "fresh_max_age": fresh_max_age,
    }
    call.out.item(call.client.put(POLICY, body))


def _secret() -> str:
    if sys.stdin.isatty():
        secret = str(typer.prompt("Secret of the client", hide_input=True, err=True))
    else:
        secret = sys.stdin.readline()
    if not secret.strip():
        raise Problem("No secret was entered; a client without one is --public.", USAGE)
    return secret.strip()


def _pairs(texts: list[str]) -> dict[str, str]:
    found = {}
    for text in texts:
        value, mark, group_id = text.rpartition("=")
        if not mark:
            raise Problem(f"{text!r} is not VALUE=GROUP_ID.", USAGE)
        found[value] = group_id
    return found
