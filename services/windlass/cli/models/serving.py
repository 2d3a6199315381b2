"""`windlass models activate`, `deactivate` and `serving`: engines that run unasked."""

from typing import Annotated

import typer

from windlass.bounds import MAX_REPLICAS
from windlass.cli.framework import completion
from windlass.cli.framework.calling import Call
from windlass.cli.framework.columns import Item, field, moment
from windlass.cli.framework.listing import All, Limit, show_list
from windlass.client.transport.urls import at

PATH = "/v1/servings"
Id = Annotated[str, typer.Argument(metavar="MODEL", autocompletion=completion.models)]
_COLUMNS = {
    "MODEL": field("model"),
    "READY": lambda item: f"{item['ready_replicas']}/{item['min_replicas']}",
    "SINCE": moment("updated_at"),
    "REASON": field("message"),
}


def activate(
    call: Call,
    model: Id,
    replicas: Annotated[
        int, typer.Option(min=1, max=MAX_REPLICAS, help="Engines that run at once.")
    ] = 1,
) -> None:
    """Has engines of a model run whether or not somebody asks; again with another number."""
    made = call.client.put(at(PATH, model), {"min_replicas": replicas})
    call.out.item(made)
    call.out.note(_state(made))


def deactivate(call: Call, model: Id) -> None:
    """Ends the engines of a model; a request starts one again."""
    call.client.delete(at(PATH, model))
    call.out.note(f"{model} is served on demand.")


def serving(call: Call, limit: Limit = 100, everything: All = False) -> None:
    """Lists the models whose engines run whether or not somebody asks."""
    show_list(call, call.client.pages(PATH), _COLUMNS, limit=limit, everything=everything)


def _state(item: Item) -> str:
    ready, wanted = item["ready_replicas"], item["min_replicas"]
    engines = "engine answers" if wanted == 1 else "engines answer"
    reason = f": {item['message']}" if item["message"] else ""
    return f"{ready} of {wanted} {engines}{reason}."
