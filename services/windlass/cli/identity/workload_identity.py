"""`windlass workload-identity`."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from windlass.cli.framework.calling import Call, Yes, command, group
from windlass.cli.framework.columns import field
from windlass.cli.framework.listing import All, Limit, show_list
from windlass.client.transport.urls import at

app = group("Workloads that show a token of their own issuer in the place of a key.")
providers = group("Issuers whose tokens the organization takes.")
rules = group("Whose tokens become which service account's.")
app.add_typer(providers, name="providers")
app.add_typer(rules, name="rules")

PROVIDERS = "/v1/organization/workload_identity_providers"
ProviderId = Annotated[str, typer.Argument(metavar="PROVIDER_ID")]
RuleId = Annotated[str, typer.Argument(metavar="RULE_ID")]
Jwks = Annotated[
    Path | None,
    typer.Option("--jwks", help="File of the issuer's public keys; default: the issuer is asked."),
]
Attributes = Annotated[
    list[str] | None,
    typer.Option(
        "--attribute",
        metavar="NAME=EXPRESSION",
        help="Attribute made of the claims, in CEL over `assertion`; may be given several times.",
    ),
]
Matchers = Annotated[
    list[str] | None,
    typer.Option(
        "--match",
        metavar="NAME=VALUE",
        help="Attribute that a token must have; true, false and numbers are what they are. May "
        "be given several times: all must fit.",
    ),
]
RuleScopes = Annotated[
    list[str] | None,
    typer.Option("--scope", help="Permission; default: all that the service account has."),
]
Bearer = Annotated[
    bool | None,
    typer.Option(
        "--bearer/--no-bearer",
        help="Whether tokens with the audience AUDIENCE/RULE_ID are taken as they are, in the "
        "place of a key.",
    ),
]
Enabled = Annotated[bool | None, typer.Option("--enable/--disable", help="Whether it counts.")]
_PROVIDERS = {
    "ID": field("id"),
    "NAME": field("name"),
    "ISSUER": field("issuer"),
    "AUDIENCE": field("audience"),
    "KEYS": lambda one: one["verification"]["type"],
    "ENABLED": field("enabled"),
}
_RULES = {
    "ID": field("id"),
    "PROJECT": field("project_id"),
    "SERVICE ACCOUNT": field("service_account_id"),
    "MATCHES": lambda one: " ".join(f"{k}={v}" for k, v in one["attribute_matchers"].items()),
    "SCOPES": lambda one: " ".join(one["permissions"].get("scopes", ["all"])),
    "BEARER": lambda one: "yes" if one.get("accepts_bearer") else "",
    "ENABLED": field("enabled"),
}


@command(providers, "create")
def create_provider(
    call: Call,
    name: Annotated[str, typer.Argument(metavar="NAME")],
    issuer: Annotated[str, typer.Option(help="URL that its tokens name as `iss`.")],
    audience: Annotated[str, typer.Option(help="What its tokens for Windlass name as `aud`.")],
    jwks: Jwks = None,
    attributes: Attributes = None,
) -> None:
    """Makes a provider."""
    body = {"name": name, "issuer": issuer, "audience": audience, "type": "oidc"}
    call.out.item(call.client.post(PROVIDERS, body | _given(jwks, attributes)))


@command(providers, "list")
def list_providers(call: Call, limit: Limit = 20, everything: All = False) -> None:
    """Lists providers."""
    show_list(call, call.client.pages(PROVIDERS), _PROVIDERS, limit=limit, everything=everything)


@command(providers, "update")
def update_provider(
    call: Call,
    provider_id: ProviderId,
    name: Annotated[str | None, typer.Option(help="Another name.")] = None,
    jwks: Jwks = None,
    attributes: Attributes = None,
    enabled: Enabled = None,
) -> None:
    """Changes a provider; the tokens that its rules gave end within a second."""
    body = {"name": name, "enabled": enabled}
    said = {key: value for key, value in body.items() if value is not None}
    call.out.item(call.client.post(at(PROVIDERS, provider_id), said | _given(jwks, attributes)))


@command(providers, "delete")
def delete_provider(call: Call, provider_id: ProviderId, yes: Yes = False) -> None:
    """Deletes a provider with its rules; the tokens that they gave end within a second."""
    call.confirm(f"Delete {provider_id} and its rules?", yes)
    call.client.delete(at(PROVIDERS, provider_id))
    call.out.note(f"Deleted {provider_id}.")


@command(rules, "create")
def create_rule(
    call: Call,
    provider_id: ProviderId,
    account: Annotated[str, typer.Argument(metavar="SERVICE_ACCOUNT")],
    scope: Annotated[str, typer.Option("--in", help="Id of the service account's project.")],
    matchers: Matchers = None,
    scopes: RuleScopes = None,
    name: Annotated[str | None, typer.Option(help="What it is called.")] = None,
    bearer: Bearer = None,
) -> None:
    """Lets workloads act as a service account."""
    body: dict[str, Any] = {"project_id": scope, "service_account_id": account}
    if name is not None:
        body["name"] = name
    said = body | {"attribute_matchers": {}} | _allowed(matchers, scopes, bearer)
    call.out.item(call.client.post(at(PROVIDERS, provider_id, "federation_rules"), said))


@command(rules, "list")
def list_rules(
    call: Call, provider_id: ProviderId, limit: Limit = 20, everything: All = False
) -> None:
    """Lists rules of a provider."""
    found = call.client.pages(at(PROVIDERS, provider_id, "federation_rules"))
    show_list(call, found, _RULES, limit=limit, everything=everything)


@command(rules, "update")
def update_rule(
    call: Call,
    provider_id: ProviderId,
    rule_id: RuleId,
    matchers: Matchers = None,
    scopes: RuleScopes = None,
    bearer: Bearer = None,
    enabled: Enabled = None,
) -> None:
    """Changes a rule; the tokens that it gave end within a second."""
    body = {} if enabled is None else {"enabled": enabled}
    path = at(PROVIDERS, provider_id, "federation_rules", rule_id)
    call.out.item(call.client.post(path, body | _allowed(matchers, scopes, bearer)))


@command(rules, "delete")
def delete_rule(call: Call, provider_id: ProviderId, rule_id: RuleId, yes: Yes = False) -> None:
    """Deletes a rule; the tokens that it gave end within a second."""
    call.confirm(f"Delete {rule_id}?", yes)
    call.client.delete(at(PROVIDERS, provider_id, "federation_rules", rule_id))
    call.out.note(f"Deleted {rule_id}.")


def _given(jwks: Path | None, attributes: list[str] | None) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if jwks is not None:
        try:
            keys = json.loads(jwks.read_text())
        except (OSError, ValueError) as error:
            raise typer.BadParameter(f"{jwks} is no JSON file: {error}") from error
        found["verification"] = {"type": "uploaded_jwks", "jwks": keys}
    if attributes is not None:
        pairs = [_pair(one, "--attribute") for one in attributes]
        found["attribute_transformations"] = [
            {"attribute": name, "expression": text} for name, text in pairs
        ]
    return found


def _allowed(
    matchers: list[str] | None, scopes: list[str] | None, bearer: bool | None
) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if matchers is not None:
        pairs = (_pair(one, "--match") for one in matchers)
        found["attribute_matchers"] = {name: _value(text) for name, text in pairs}
    if scopes is not None:
        found["permissions"] = {"type": "restricted", "scopes": scopes}
    if bearer is not None:
        found["accepts_bearer"] = bearer
    return found


def _pair(text: str, option: str) -> tuple[str, str]:
    name, separator, value = text.partition("=")
    if not separator or not name:
        raise typer.BadParameter(f"{option} takes NAME=VALUE, not {text!r}.")
    return name, value


def _value(text: str) -> object:
    """A number or a boolean where the text is one in JSON, else the text itself."""
    try:
        found = json.loads(text)
    except ValueError:
        return text
    return found if isinstance(found, bool | int | float) else text
