"""`windlass jobs create`."""

import json
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from windlass.cli.framework import completion
from windlass.cli.framework.calling import Call
from windlass.cli.framework.columns import Item
from windlass.cli.framework.failures import USAGE, Problem
from windlass.cli.framework.values import AUTO, pairs, real, size
from windlass.cli.jobs.creation import recipes, settings
from windlass.cli.jobs.creation.document import JobDocument, read
from windlass.cli.jobs.creation.examples import ExampleName, text_of
from windlass.cli.jobs.creation.submission import submit
from windlass.cli.jobs.following import finish, follow_job
from windlass.cli.jobs.methods import MethodName, Whole


class Export(StrEnum):
    """Further exports of an adapter; `docs/how-to/export-a-model.md`."""

    MERGED = "merged"
    GGUF = "gguf"


_REWARDED = (MethodName.REINFORCEMENT, MethodName.RLOO)
_CONFIGURED_BETA = (MethodName.KTO, MethodName.ORPO, MethodName.DISTILLATION)
_FILE = "Path of a file to upload, or the id of an uploaded file."
Real = Annotated[str | None, typer.Option(parser=real, metavar="NUMBER|auto")]


def create(
    call: Call,
    model: Annotated[
        str, typer.Option(help="Base model.", autocompletion=completion.tunable_models)
    ] = "",
    training_file: Annotated[str, typer.Option(help=_FILE, autocompletion=completion.files)] = "",
    validation_file: Annotated[str, typer.Option(help=_FILE, autocompletion=completion.files)] = "",
    suffix: Annotated[str, typer.Option(help="Suffix of the new model's name.")] = "",
    method: Annotated[
        MethodName | None, typer.Option(help="Training method; default: supervised.")
    ] = None,
    epochs: Whole = None,
    batch_size: Whole = None,
    learning_rate_multiplier: Real = None,
    beta: Annotated[
        str | None,
        typer.Option(
            parser=real, metavar="NUMBER|auto", help="Beta of dpo, kto, orpo and distillation."
        ),
    ] = None,
    teacher: Annotated[
        str,
        typer.Option(help="Teacher model of distillation.", autocompletion=completion.models),
    ] = "",
    grader: Annotated[
        Path | None,
        typer.Option(
            exists=True, dir_okay=False, help="JSON file of the grader, for reinforcement and rloo."
        ),
    ] = None,
    evaluation_file: Annotated[
        str,
        typer.Option(
            help="Held-out examples to compare the model with its base by; a path or an id.",
            autocompletion=completion.files,
        ),
    ] = "",
    evaluation_grader: Annotated[
        Path | None,
        typer.Option(
            exists=True,
            dir_okay=False,
            help="JSON file of the grader of --evaluation-file; default: that of --grader.",
        ),
    ] = None,
    seed: Annotated[
        int | None, typer.Option(min=0, help="Random seed; default: drawn at random.")
    ] = None,
    nodes: Annotated[
        int | None, typer.Option(min=1, help="Nodes that train together; default: 1.")
    ] = None,
    gpus: Annotated[int | None, typer.Option(min=0, help="GPUs of each node.")] = None,
    cpus: Annotated[int | None, typer.Option(min=0, help="CPUs of each node.")] = None,
    memory: Annotated[
        str | None,
        typer.Option(parser=size, metavar="SIZE", help="Memory of each node, such as 64GiB."),
    ] = None,
    backend: Annotated[str, typer.Option(help="Training backend: trl or torchtune.")] = "",
    runtime: Annotated[
        str, typer.Option(help="Training runtime; refused if no live cluster offers it.")
    ] = "",
    export: Annotated[
        list[Export] | None,
        typer.Option(help="Also export the model in this form. May be repeated."),
    ] = None,
    metadata: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY=VALUE", help="Metadata of the job. May be repeated."),
    ] = None,
    file: Annotated[
        Path | None,
        typer.Option(
            "--file",
            "-f",
            help="YAML or JSON file of the job, or - for stdin. Other options win over it.",
        ),
    ] = None,
    recipe: Annotated[
        str,
        typer.Option(
            help="Begin with these settings; windlass jobs recipes lists them. The file wins.",
            autocompletion=recipes.completed,
        ),
    ] = "",
    assignments: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="Any setting by its path, such as windlass.config.rank=8. May be repeated.",
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Check everything; upload and create nothing.")
    ] = False,
    example: Annotated[
        ExampleName | None,
        typer.Option(help="Print a file for --file with comments, and do nothing else."),
    ] = None,
    follow: Annotated[bool, typer.Option("--follow", help="Show progress until it ends.")] = False,
) -> None:
    """Creates a job; with --follow exit code 1 says that it did not succeed."""
    if example is not None:
        typer.echo(text_of(example), nl=False)
        return
    if dry_run and follow:
        raise Problem("--dry-run cannot be combined with --follow.", USAGE)
    document = JobDocument(recipes.recipe(recipe) if recipe else {})
    document.merge(read(file) if file else {})
    if method is not None:
        document.choose(method)
    document.put(
        {
            "model": model,
            "training_file": training_file,
            "validation_file": validation_file,
            "suffix": suffix,
            "seed": seed,
            "windlass.backend": backend,
            "windlass.runtime": runtime,
            "windlass.export": [one.value for one in export or ()],
            "windlass.evaluation.file": evaluation_file,
            "windlass.evaluation.grader": _json(evaluation_grader) if evaluation_grader else None,
            "windlass.resources.nodes": nodes,
            "windlass.resources.gpus": gpus,
            "windlass.resources.cpus": cpus,
            "windlass.resources.memory_bytes": memory,
        }
    )
    for key, value in pairs(metadata).items():
        document.set(["metadata", key], value)
    hyperparameters = {
        "n_epochs": epochs,
        "batch_size": batch_size,
        "learning_rate_multiplier": learning_rate_multiplier,
    }
    _of_method(document, hyperparameters, beta=beta, teacher=teacher, grader=grader)
    if assignments:
        settings.apply(document, call.client.get("/openapi.json"), assignments)
    _require(document, dry_run=dry_run)
    job = submit(call, document.body, dry_run=dry_run)
    _show(call, job, dry_run=dry_run, follow=follow)


def _show(call: Call, job: Item, *, dry_run: bool, follow: bool) -> None:
    if dry_run:
        call.out.item(job)
        call.out.note(f"Nothing was created. {job['windlass']['queue']['reason'] or ''}".rstrip())
    elif follow:
        finish(call, follow_job(call, job["id"]))
    else:
        call.out.item(job)
        call.out.note(f"Follow it: windlass jobs events -f {job['id']}")


def _of_method(
    document: JobDocument,
    hyperparameters: Item,
    *,
    beta: str | None,
    teacher: str,
    grader: Path | None,
) -> None:
    """Puts in what is of the method; raises Problem for what the method does not have."""
    method = document.method
    for option, given, takers in (
        ("--beta", beta, (MethodName.DPO, *_CONFIGURED_BETA)),
        ("--teacher", teacher, (MethodName.DISTILLATION,)),
        ("--grader", grader, _REWARDED),
    ):
        if given and method not in takers:
            raise Problem(f"{option} cannot be combined with --method {method}.", USAGE)
    if method == MethodName.DPO:
        hyperparameters = hyperparameters | {"beta": beta}
    elif beta != AUTO:
        document.put({"windlass.config.beta": beta})
    document.tune(hyperparameters)
    document.put({"windlass.config.teacher": teacher})
    if grader is not None:
        document.put({"method.reinforcement.grader": _json(grader)})


def _require(document: JobDocument, *, dry_run: bool) -> None:
    """Raises Problem for what is missing, or does not fit the method, by the option that has it."""
    if not document.get("model"):
        raise Problem("--model is required, or `model` in --file.", USAGE)
    if not document.get("training_file") and not dry_run:
        raise Problem("--training-file is required, or `training_file` in --file.", USAGE)
    if document.get("windlass.evaluation") and not document.get("windlass.evaluation.file"):
        raise Problem("--evaluation-grader requires --evaluation-file.", USAGE)
    if document.get("windlass.document"):
        return
    method = document.method
    for path, option, takers in (
        ("windlass.config.teacher", "--teacher", (MethodName.DISTILLATION,)),
        ("method.reinforcement.grader", "--grader", _REWARDED),
    ):
        if method in takers and not document.get(path):
            raise Problem(f"The method {method} requires {option}.", USAGE)


def _json(path: Path) -> Item:
    try:
        found: Item = json.loads(path.read_text())
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        raise Problem(f"{path} is not JSON: {error}.", USAGE) from None
    return found
