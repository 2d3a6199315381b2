"""`windlass webhooks`: addresses that hear when jobs end."""

from typing import Annotated

import typer

from windlass.cli.framework.calling import Call, Yes, command, group
from windlass.cli.framework.columns import Item, field, moment
from windlass.cli.framework.failures import Problem
from windlass.cli.framework.listing import All, Limit, show_list
from windlass.client.transport.urls import at

app = group("Addresses that are told when jobs of the project end.")
PATH = "/v1/webhook_endpoints"
_PREFIX = "fine_tuning.job."
Id = Annotated[str, typer.Argument(metavar="WEBHOOK_ID")]


def _ends(item: Item) -> str:
    return ", ".join(one.removeprefix(_PREFIX) for one in item["event_types"])


_COLUMNS = {
    "ID": field("id"),
    "NAME": field("name"),
    "URL": field("url"),
    "TOLD OF": _ends,
    "CREATED": moment("created_at"),
}


@command(app, "create")
def create(
    call: Call,
    url: str,
    name: Annotated[str, typer.Option(help="Name for people; default: the host.")] = "",
    on: Annotated[
        list[str] | None,
        typer.Option(help="End to tell of: succeeded, failed or cancelled; default: all."),
    ] = None,
) -> None:
    """Makes a webhook and shows its secret, this once; with -q nothing but the secret."""
    kinds = [_PREFIX + end for end in on or ()]
    made = call.client.post(PATH, {"url": url, "name": name, "event_types": kinds})
    if call.out.quiet and call.out.is_table:
        typer.echo(made["signing_secret"])
        return
    call.out.item(made)
    call.out.note("Copy the secret now: it is not shown again.")


@command(app, "list")
def list_webhooks(call: Call, limit: Limit = 20, everything: All = False) -> None:
    """Lists webhooks, newest first."""
    show_list(call, call.client.pages(PATH), _COLUMNS, limit=limit, everything=everything)


@command(app, "test")
def send_sample(
    call: Call,
    webhook_id: Id,
    on: Annotated[str, typer.Option(help="End to tell of.")] = "succeeded",
) -> None:
    """Sends a sample event; fails unless the receiver takes it."""
    answer = call.client.post(f"{at(PATH, webhook_id)}/test", {"event_type": _PREFIX + on})
    status = answer["status_code"]
    if not 200 <= status < 300:
        raise Problem(
            f"The receiver responded with status {status}. It must be 2xx to take an event."
        )
    call.out.note(f"The receiver took the event: status {status}.")


@command(app, "delete")
def delete(call: Call, webhook_id: Id, yes: Yes = False) -> None:
    """Deletes one; what it was still to hear is not sent."""
    call.confirm(f"Delete webhook {webhook_id}?", yes)
    call.client.delete(at(PATH, webhook_id))
    call.out.note(f"Deleted {webhook_id}.")
