"""`windlass models import`."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated

import typer

from windlass.cli.framework.calling import Call
from windlass.cli.framework.failures import USAGE, Problem

_HIDDEN = (403, 404)


def import_model(
    call: Call,
    path: Annotated[Path, typer.Argument(exists=True, file_okay=False, readable=True)],
    name: Annotated[
        str, typer.Option("--id", help="Id of the model; default: the name of the folder.")
    ] = "",
    chat_template: Annotated[
        str,
        typer.Option(
            metavar="FILE|NAME",
            help="Chat template for a model that has none, or instead of its own: a file, or "
            "chatml, deepseek-coder, gemma, llama3, mistral or qwen. `preset`: the one of the "
            "model's preset, where it has none.",
        ),
    ] = "",
    for_everyone: Annotated[
        bool,
        typer.Option(
            "--global",
            help="Make the model available to all projects (platform administrators only).",
        ),
    ] = False,
) -> None:
    """Checks a folder in Hugging Face's layout (safetensors), and uploads it as a base model."""
    from windlass.client.resources.models import manifest

    folder = path.resolve()
    with call.out.waiting(f"checking {folder.name}"):
        model_id, files = _checked(name, folder, chat_template)
        warnings = list(_warnings(files, is_given=bool(chat_template)))
    total = sum(file.stat().st_size for file in files.values())
    _refuse_taken(call, model_id, total, for_everyone=for_everyone)
    for sentence in warnings:
        call.out.note(sentence)
    with call.out.transfer("Hashed", total) as hashed:
        promised = manifest(files, hashed)
    with call.out.transfer("Uploaded", total) as uploaded:
        import_id = call.client.models.send(
            model_id, files, promised, for_everyone=for_everyone, progress=uploaded
        )
    with call.out.waiting("waiting for the server to check the files"):
        model = call.client.models.complete(import_id)
    call.out.item(model)


def _checked(name: str, folder: Path, chat_template: str) -> tuple[str, dict[str, Path]]:
    """The model's id and the files that are sent; raises Problem for what would be refused."""
    from windlass import modelfiles
    from windlass.client.resources.models import model_files
    from windlass.datasets.model_folder import check_chat_template

    try:
        model_id = name or modelfiles.id_of_folder(folder)
        if not modelfiles.is_model_id(model_id):
            raise ValueError(f"A model id must be {modelfiles.ID_RULE}")
        files = model_files(folder, chat_template)
        modelfiles.check_files(files)
        template = files.get(modelfiles.CHAT_TEMPLATE)
        if chat_template and template and template.parent != folder:
            check_chat_template(template.read_text())
    except ValueError as error:
        raise Problem(str(error), USAGE) from error
    return model_id, files


def _refuse_taken(call: Call, model_id: str, total: int, *, for_everyone: bool) -> None:
    """Raises Problem where a model of another size has the id; the server compares digests."""
    from windlass.client.errors import WindlassError
    from windlass.client.transport.urls import at

    try:
        about = call.client.get(at("/v1/models", model_id))["windlass"]
    except WindlassError as error:
        # There is none; or the key may not read, and the server decides at the import.
        if error.status in _HIDDEN:
            return
        raise
    # A project's own name hides that of a model for everyone.
    is_same_place = for_everyone == (about["project_id"] is None)
    if is_same_place and about["bytes"] != total:
        raise Problem(
            f"Another model is named {model_id!r}: it has {about['bytes']:,} bytes, and the folder "
            f"{total:,}. Give another id with --id."
        )


def _warnings(files: Mapping[str, Path], *, is_given: bool) -> Iterator[str]:
    """Yields what an imported model will not do."""
    from windlass import modelfiles

    config = json.loads(files["config.json"].read_bytes())
    if unknown := modelfiles.unknown_type(config["model_type"]):
        yield unknown
    if not modelfiles.generates(config, files):
        return
    if is_given and modelfiles.CHAT_TEMPLATE in files:
        yield from modelfiles.misfits(files)
    elif not modelfiles.has_chat_template(files):
        names = modelfiles.fitting(files)
        fit = f" Its tokenizer fits {' and '.join(names)}." if names else ""
        yield (
            "The model has no chat template: it completes texts, but takes no chats and trains on "
            f"no conversations. --chat-template adds one.{fit}"
        )
