"""`windlass files check`."""

import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from windlass.cli.framework import completion
from windlass.cli.framework.calling import Call
from windlass.cli.framework.columns import Item
from windlass.cli.framework.failures import USAGE, Problem
from windlass.cli.framework.output import OutputFormat
from windlass.cli.jobs.estimate import (
    BaseModel,
    as_text,
    estimate,
    limit_of,
    method_of,
    time_of,
)
from windlass.cli.jobs.faults import as_items, show_faults
from windlass.cli.jobs.methods import MethodName, Whole
from windlass.cli.jobs.speed import TrainingSpeed, measured_speed
from windlass.client.transport.urls import at

if TYPE_CHECKING:
    from windlass.datasets import FileSummary
    from windlass.datasets.checking import FileCheck
    from windlass.datasets.lines import Progress
    from windlass.datasets.token_counts import TokenCounts


def check(
    call: Call,
    path: Annotated[
        Path, typer.Argument(metavar="FILE", exists=True, dir_okay=False, readable=True)
    ],
    model: Annotated[
        str,
        typer.Option(
            help="Folder of the base model, whose tokenizer counts; or a model of the server.",
            autocompletion=completion.models,
        ),
    ] = "",
    method: Annotated[
        MethodName | None, typer.Option(help="Training method; default: by the file's format.")
    ] = None,
    max_length: Annotated[
        int | None, typer.Option(min=16, help="Longest example in tokens; default: 2048.")
    ] = None,
    epochs: Whole = None,
    batch_size: Whole = None,
    tokens_per_second: Annotated[
        float | None,
        typer.Option(
            min=0.001,
            help="Speed of the training, such as another job's, to estimate its time; default: "
            "that of the last job that trained the server's model.",
        ),
    ] = None,
) -> None:
    """Checks a training file: every error, tokens, and what a training would make of it."""
    base = _base(call, model)
    limit = limit_of(method, max_length, base.context)
    with call.out.waiting(f"checking {path.name}", path.stat().st_size) as line:
        found, counts = _checked(path, base, limit, method, line.advance)
        item: Item = {
            "file": str(path),
            "valid": not found.faults.count,
            "format": found.format.value if found.format else None,
            "examples": found.examples,
            "errors": found.faults.count,
        }
        if found.examples:
            item |= _lengths(counts)
    if found.format and not found.faults.count:
        chosen = method_of(found, method)
        asked = {"n_epochs": epochs, "batch_size": batch_size}
        item |= estimate(found, counts, base, chosen, asked)
        time = time_of(item["training"], _speed(call, base, chosen, tokens_per_second))
        item["time"] = as_text(time) if call.out.form is OutputFormat.TABLE else time
    show_faults(call.out, item | {"faults": as_items(found.faults)}, "faults", of=str(path))
    if found.faults.count:
        raise Problem(_verdict(path, found), USAGE)


def _speed(
    call: Call, base: BaseModel, method: MethodName, given: float | None
) -> TrainingSpeed | None:
    if given is not None:
        return TrainingSpeed(given, "as given")
    return measured_speed(call, base.name, method) if base.name else None


def _checked(
    path: Path,
    base: BaseModel,
    limit: int | None,
    method: MethodName | None,
    progress: "Progress",
) -> "tuple[FileCheck, TokenCounts]":
    from windlass.backends.methods import READS
    from windlass.datasets.checking import check_file
    from windlass.datasets.token_counts import ApproximateTokenizer, TokenCounts

    counts = TokenCounts(
        base.tokenizer or ApproximateTokenizer(), limit, whole=method is MethodName.REWARD
    )
    read = READS[method] if method else None
    return check_file(path, counts, read=read, progress=progress), counts


def require_sound(call: Call, path: Path) -> "FileSummary":
    """Returns what a file holds; raises Problem for one that the server would refuse."""
    with call.out.waiting(f"checking {path.name}", path.stat().st_size) as line:
        from windlass.datasets import inspect_file

        with _told(path, checks=True):
            return inspect_file(path, line.advance)


def require_gradable(
    call: Call, path: Path, grader: Any, *, read: str, most: int | None = None
) -> None:
    """Raises Problem for an example, of the first `most`, that lacks what the grader refers to.

    `read` is what is made of examples. A grader that is none is the server's to refuse.
    """
    from windlass import graders
    from windlass.datasets import read_examples, to_row

    try:
        parsed = graders.parse(grader)
    except graders.InvalidGrader:
        return
    size = path.stat().st_size if most is None else None
    with (
        _told(path, checks=False),
        call.out.waiting(f"checking {path.name} by its grader", size) as line,
    ):
        for number, example in islice(read_examples(path, line.advance), most):
            graders.check_item(parsed, to_row(example, read, number)["item"], number)


@contextmanager
def _told(path: Path, *, checks: bool) -> Iterator[None]:
    """Turns what is wrong with a file into a Problem that names it.

    `checks` says that `windlass files check` would find it.
    """
    from windlass.datasets import DatasetError

    try:
        yield
    except DatasetError as error:
        quoted = shlex.quote(str(path))
        message = str(error).replace("convert FILE`", f"convert {quoted}`")
        if checks and message == str(error):
            message += f" `windlass files check {quoted}` shows every error."
        raise Problem(f"{path}: {message}", USAGE) from None


def _verdict(path: Path, found: "FileCheck") -> str:
    errors = f"{found.faults.count:,} error{'s' if found.faults.count > 1 else ''}"
    return f"{path} cannot be trained on: {errors}."


def _lengths(counts: "TokenCounts") -> Item:
    quantiles = {"min": 0.0, "median": 0.5, "p95": 0.95, "max": 1.0}
    return {
        "tokens": {name: counts.quantile(share) for name, share in quantiles.items()}
        | {"total": sum(counts.lengths)},
        "counted_by": counts.tokenizer.name,
        "limit": counts.limit,
        "truncated": counts.truncated,
        "left_out": counts.left_out,
    }


def _base(call: Call, model: str) -> BaseModel:
    """Returns what is known of the base model, from its folder or from the server."""
    folder = Path(model) if model else None
    if folder is not None and folder.is_dir():
        with call.out.waiting(f"reading {folder}"):
            return _local(folder)
    if folder is not None and (len(folder.parts) > 1 or model.startswith(".")):
        raise Problem(f"There is no folder {model}.", USAGE)
    if not model:
        return BaseModel()
    answer: dict[str, Any] = call.client.get(at("/v1/models", model))
    return BaseModel(name=model, bytes=answer["windlass"]["bytes"])


def _local(folder: Path) -> BaseModel:
    from windlass.datasets.model_folder import FolderTokenizer, read_document

    try:
        config = read_document(folder / "config.json")
        text = config.get("text_config")
        context = (text if isinstance(text, dict) else config).get("max_position_embeddings")
        return BaseModel(
            bytes=sum(file.stat().st_size for file in folder.glob("*.safetensors")) or None,
            context=context if isinstance(context, int) else None,
            tokenizer=FolderTokenizer(folder),
        )
    except ValueError as error:
        raise Problem(str(error), USAGE) from None
