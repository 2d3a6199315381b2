"""`windlass models`."""

from pathlib import Path
from typing import Annotated

import typer

from windlass.cli.framework import completion
from windlass.cli.framework.calling import Call, Limit, Yes, command, group
from windlass.cli.framework.columns import field, moment, size
from windlass.cli.framework.failures import USAGE, Problem
from windlass.cli.models import fetching
from windlass.client.transport.urls import at

app = group("Base models, fine-tuned models and checkpoints.")
PATH = "/v1/models"
Id = Annotated[str, typer.Argument(metavar="MODEL", autocompletion=completion.models)]
_COLUMNS = {
    "ID": field("id"),
    "KIND": field("windlass.kind"),
    "BASE": field("windlass.base_model"),
    "SIZE": size("windlass.bytes"),
    "CREATED": moment("created"),
}


@command(app, "list")
def list_models(call: Call, limit: Limit = 100) -> None:
    """Lists the project's models and those for everyone."""
    call.out.items(list(call.client.pages(PATH, limit=limit)), _COLUMNS)


@command(app, "get")
def get(call: Call, model: Id) -> None:
    """Shows one."""
    call.out.item(call.client.get(at(PATH, model)))


@command(app, "delete")
def delete(call: Call, model: Id, yes: Yes = False) -> None:
    """Deletes a model that nothing uses, and its weights."""
    call.confirm(f"Delete {model} and its weights?", yes)
    call.client.delete(at(PATH, model))
    call.out.note(f"Deleted {model}.")


@command(app, "import")
def import_model(
    call: Call,
    path: Annotated[Path, typer.Argument(exists=True, file_okay=False, readable=True)],
    name: Annotated[
        str, typer.Option("--id", help="Id of the model; default: the name of the folder.")
    ] = "",
    for_everyone: Annotated[
        bool,
        typer.Option(
            "--global",
            help="Make the model available to all projects (platform administrators only).",
        ),
    ] = False,
) -> None:
    """Uploads a folder in Hugging Face's layout (safetensors) as a base model."""
    from windlass.client.display.progress import transfer
    from windlass.client.resources.models import manifest, model_files

    folder, console = path.resolve(), call.out.progress
    try:
        total = sum(file.stat().st_size for file in model_files(folder))
    except ValueError as error:
        raise Problem(str(error), USAGE) from error
    with transfer("Hashed", total, console) as hashed:
        files = manifest(folder, hashed)
    with transfer("Uploaded", total, console) as uploaded:
        model = call.client.models.upload(
            name or folder.name, folder, files, for_everyone=for_everyone, progress=uploaded
        )
    call.out.item(model)


command(app, "fetch")(fetching.fetch)
command(app, "fetches")(fetching.fetches)
command(app, "cancel-fetch")(fetching.cancel_fetch)
