"""`windlass models`."""

from collections.abc import Sequence
from enum import StrEnum
from typing import Annotated

import typer

from windlass.cli.framework import completion
from windlass.cli.framework.calling import Call, Yes, command, group
from windlass.cli.framework.columns import Item, field, moment, size
from windlass.cli.framework.listing import All, Limit, show_list
from windlass.cli.models import fetching, fit, importing, prefetching, serving
from windlass.client.transport.urls import at

app = group("Base models, fine-tuned models and checkpoints.")
PATH = "/v1/models"
Id = Annotated[str, typer.Argument(metavar="MODEL", autocompletion=completion.models)]


class KindFilter(StrEnum):
    """Kinds of models: imported, made by a job, saved by one in its training, or of a stack."""

    BASE = "base"
    FINE_TUNED = "fine-tuned"
    CHECKPOINT = "checkpoint"
    ADOPTED = "adopted"


def _kind(item: Item) -> str:
    about = item.get("windlass") or {}
    return KindFilter.CHECKPOINT if about.get("is_checkpoint") else field("windlass.kind")(item)


_COLUMNS = {
    "ID": field("id"),
    "KIND": _kind,
    "BASE": field("windlass.base_model"),
    "SIZE": size("windlass.bytes"),
    "CREATED": moment("created"),
}


@command(app, "list")
def list_models(
    call: Call,
    kind: Annotated[KindFilter | None, typer.Option(help="Only models of this kind.")] = None,
    limit: Limit = 100,
    everything: All = False,
) -> None:
    """Lists the project's models and those for everyone, newest first."""
    models = call.client.pages(PATH, kind=kind and kind.value)
    show_list(call, models, _COLUMNS, limit=limit, everything=everything)


@command(app, "get")
def get(call: Call, model: Id) -> None:
    """Shows one."""
    call.out.item(call.client.get(at(PATH, model)))


@command(app, "delete")
def delete(
    call: Call,
    model: Id,
    checkpoints: Annotated[
        bool, typer.Option("--checkpoints", help="Delete the checkpoints of its job, too.")
    ] = False,
    yes: Yes = False,
) -> None:
    """Deletes a model that nothing uses, and its weights."""
    beside = ", the other checkpoints of its job" if checkpoints else ""
    call.confirm(f"Delete {model}{beside} and the weights?", yes)
    left = call.client.delete(at(PATH, model))["windlass"]["checkpoints"]
    call.out.note(f"Deleted {model}.")
    if not checkpoints:
        _tell_left(call, left)
        return
    for name in left:
        call.client.delete(at(PATH, name))
        call.out.note(f"Deleted {name}.")


def _tell_left(call: Call, left: Sequence[str]) -> None:
    if left:
        number = f"{len(left)} checkpoint" + ("s" if len(left) > 1 else "")
        call.out.note(
            f"{number} of its job stay: {', '.join(left)}. `windlass models delete "
            f"{left[0]} --checkpoints` deletes all of them."
        )


command(app, "import")(importing.import_model)
command(app, "fetch")(fetching.fetch)
command(app, "fetches")(fetching.fetches)
command(app, "cancel-fetch")(fetching.cancel_fetch)
command(app, "prefetch")(prefetching.prefetch)
command(app, "prefetches")(prefetching.prefetches)
command(app, "fit")(fit.fit)
command(app, "activate")(serving.activate)
command(app, "deactivate")(serving.deactivate)
command(app, "serving")(serving.serving)
