"""`windlass mail-domains`."""

from typing import Annotated

import typer

from windlass.cli.framework.calling import Call, Yes, command, group
from windlass.cli.framework.columns import field, moment
from windlass.cli.framework.listing import All, Limit, show_list
from windlass.client.transport.urls import at

app = group("Mail domains of the organization, whose people come in by them.")
PATH = "/v1/organization/mail_domains"
Domain = Annotated[str, typer.Argument(metavar="DOMAIN")]
DefaultRole = Annotated[
    str,
    typer.Option(help="Of new people with an address in it, such as organization_reader."),
]
_COLUMNS = {
    "DOMAIN": field("name"),
    "VERIFIED": moment("verified_at"),
    "MISSING SINCE": moment("missing_since"),
    "ROLE": field("default_role"),
    "SINCE": moment("created_at"),
}


@command(app, "create")
def create(call: Call, domain: Domain, default_role: DefaultRole = "") -> None:
    """Names a domain, and shows the TXT record that proves it."""
    made = call.client.post(PATH, {"name": domain, "default_role": default_role})
    call.out.item(made)
    call.out.note(
        f"Have DNS say TXT {made['record_name']} {made['record_value']}, then run "
        f"windlass mail-domains verify {made['name']}."
    )


@command(app, "verify")
def verify(call: Call, domain: Domain) -> None:
    """Asks DNS whether a domain is the organization's."""
    call.out.item(call.client.post(f"{at(PATH, domain)}/verify", {}))


@command(app, "list")
def list_domains(call: Call, limit: Limit = 20, everything: All = False) -> None:
    """Lists domains."""
    show_list(call, call.client.pages(PATH), _COLUMNS, limit=limit, everything=everything)


@command(app, "update")
def update(call: Call, domain: Domain, default_role: DefaultRole = "") -> None:
    """Changes what new people of a domain become; without a role they need an invite."""
    call.out.item(call.client.post(at(PATH, domain), {"default_role": default_role}))


@command(app, "delete")
def delete(call: Call, domain: Domain, yes: Yes = False) -> None:
    """Gives a domain up; its people stay."""
    call.confirm(f"Give up {domain}?", yes)
    call.client.delete(at(PATH, domain))
    call.out.note(f"Deleted {domain}.")
