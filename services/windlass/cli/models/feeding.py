"""`windlass engines feed`: traffic that trains the engine which answers it."""

import json
from pathlib import Path
from typing import Annotated

import typer

from windlass.cli.framework import completion
from windlass.cli.framework.calling import Call, command, group
from windlass.cli.framework.columns import Columns, field, moment
from windlass.cli.framework.failures import Problem
from windlass.cli.framework.listing import All, Limit, show_list
from windlass.client.transport.urls import at

app = group("Traffic that trains the engine which answers it.")
PATH = "/v1/engines"
Model = Annotated[str, typer.Argument(metavar="MODEL", autocompletion=completion.models)]
_COLUMNS: Columns = {
    "MODEL": field("model"),
    "KEYS": lambda item: ", ".join(item["key_ids"]),
    "KEPT": lambda item: str(item["kept"]),
    "REFUSED": lambda item: str(item["refused"]),
    "WAITING": lambda item: str(item["waiting"]),
    "TRAINED": lambda item: str(item["trained"]),
    "SINCE": moment("created_at"),
    "REASON": field("message"),
}


@command(app, "set")
def set_feed(
    call: Call,
    model: Model,
    request: Annotated[
        Path,
        typer.Argument(
            metavar="FILE",
            exists=True,
            dir_okay=False,
            help="JSON with key_ids, grader and least_score, and what else differs.",
        ),
    ],
) -> None:
    """Has answers of chosen keys train the engine of a model, where requests consent."""
    try:
        body = json.loads(request.read_text())
    except (OSError, ValueError) as error:
        raise Problem(f"{request} cannot be read: {error}") from error
    if not isinstance(body, dict):
        raise Problem(f"{request} holds no object of JSON.")
    call.out.item(call.client.put(at(PATH, model, "feed"), body))


@command(app, "show")
def show_feed(call: Call, model: Model) -> None:
    """Shows the feed of a model, and what became of the answers that it has kept."""
    call.out.item(call.client.get(at(PATH, model, "feed")))


@command(app, "list")
def list_feeds(call: Call, limit: Limit = 20, everything: All = False) -> None:
    """Lists feeds of the project, newest first."""
    found = call.client.pages(f"{PATH}/feeds")
    show_list(call, found, _COLUMNS, limit=limit, everything=everything)


@command(app, "delete")
def delete_feed(call: Call, model: Model) -> None:
    """Ends the feed of a model with all that it has kept."""
    call.out.item(call.client.delete(at(PATH, model, "feed")))
