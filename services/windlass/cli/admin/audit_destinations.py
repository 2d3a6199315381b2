"""`windlass audit destinations`: where the audit log is exported to."""

import sys
from typing import Annotated

import typer

from windlass.cli.framework.calling import Call, Yes, command, group
from windlass.cli.framework.columns import Item, field, moment
from windlass.cli.framework.listing import All, Limit, show_list
from windlass.client.transport.urls import at

app = group("Receivers that the audit log is exported to, as OCSF in JSON lines.")
PATH = "/v1/audit_destinations"
Id = Annotated[str, typer.Argument(metavar="DESTINATION_ID")]


def _state(item: Item) -> str:
    if item["failures"]:
        return f"failed {item['failures']} times"
    return f"{item['behind']} behind" if item["behind"] else "current"


_COLUMNS = {
    "ID": field("id"),
    "NAME": field("name"),
    "KIND": field("kind"),
    "URL": field("url"),
    "STATE": _state,
    "DELIVERED": moment("delivered_at"),
    "ERROR": field("error"),
}


@command(app, "create")
def create(
    call: Call,
    kind: Annotated[str, typer.Argument(help="webhook, bucket or syslog.")],
    url: Annotated[str, typer.Argument(help="https://… or tls://HOST:PORT.")],
    name: Annotated[str, typer.Option(help="Name for people; default: the host.")] = "",
    bucket: Annotated[str, typer.Option(help="Bucket of the S3 server at URL.")] = "",
    prefix: Annotated[str, typer.Option(help="Folder of the objects there.")] = "",
    region: Annotated[str, typer.Option(help="Region of the bucket.")] = "",
    access_key_id: Annotated[
        str,
        typer.Option(help="Access key of the bucket; its secret is asked for or read from stdin."),
    ] = "",
    from_now: Annotated[
        bool, typer.Option("--from-now", help="Nothing of what is there already.")
    ] = False,
) -> None:
    """Makes a destination; of a webhook it shows the secret, this once."""
    body = {
        "kind": kind, "url": url, "name": name, "bucket": bucket, "prefix": prefix,
        "region": region, "access_key_id": access_key_id, "from_now": from_now,
    }  # fmt: skip
    if access_key_id:
        body["secret_access_key"] = _secret(access_key_id)
    made = call.client.post(PATH, body)
    if made["signing_secret"] and call.out.quiet and call.out.is_table:
        typer.echo(made["signing_secret"])
        return
    call.out.item(made)
    if made["signing_secret"]:
        call.out.note("Copy the secret now: it is not shown again.")


def _secret(access_key_id: str) -> str:
    if sys.stdin.isatty():
        return str(typer.prompt(f"Secret of {access_key_id}", hide_input=True, err=True))
    # The line end of `echo` belongs to no secret.
    return sys.stdin.read().removesuffix("\n")


@command(app, "list")
def list_destinations(call: Call, limit: Limit = 20, everything: All = False) -> None:
    """Lists destinations, newest first, with how far they have come and what fails."""
    show_list(call, call.client.pages(PATH), _COLUMNS, limit=limit, everything=everything)


@command(app, "show")
def show(call: Call, destination_id: Id) -> None:
    """Shows one."""
    call.out.item(call.client.get(at(PATH, destination_id)))


@command(app, "delete")
def delete(call: Call, destination_id: Id, yes: Yes = False) -> None:
    """Deletes one; nothing more is sent to it."""
    call.confirm(f"Delete destination {destination_id}?", yes)
    call.client.delete(at(PATH, destination_id))
    call.out.note(f"Deleted {destination_id}.")
