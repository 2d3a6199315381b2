"""`windlass jobs create`."""

import json
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from windlass.cli.framework import completion
from windlass.cli.framework.calling import Call
from windlass.cli.framework.columns import Item
from windlass.cli.framework.failures import USAGE, Problem
from windlass.cli.framework.prefixes import did_you_mean, file_id
from windlass.cli.framework.values import AUTO, pairs, real, size
from windlass.cli.jobs import files
from windlass.cli.jobs.following import finish, follow_job
from windlass.cli.jobs.methods import MethodName, Whole


class Export(StrEnum):
    """Further exports of an adapter; `docs/how-to/export-a-model.md`."""

    MERGED = "merged"
    GGUF = "gguf"


_OPENAI = (MethodName.SUPERVISED, MethodName.DPO)
_REWARDED = (MethodName.REINFORCEMENT, MethodName.RLOO)
_BETA = (MethodName.DPO, MethodName.KTO, MethodName.ORPO, MethodName.DISTILLATION)


_FILE = "Path of a file to upload, or the id of an uploaded file."
Real = Annotated[str | None, typer.Option(parser=real, metavar="NUMBER|auto")]


def create(
    call: Call,
    model: Annotated[
        str, typer.Option(help="Base model.", autocompletion=completion.tunable_models)
    ],
    training_file: Annotated[str, typer.Option(help=_FILE, autocompletion=completion.files)],
    validation_file: Annotated[str, typer.Option(help=_FILE, autocompletion=completion.files)] = "",
    suffix: Annotated[str, typer.Option(help="Suffix of the new model's name.")] = "",
    method: Annotated[MethodName, typer.Option(help="Training method.")] = MethodName.SUPERVISED,
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
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Show progress until the job ends.")
    ] = False,
) -> None:
    """Creates a job; with --follow exit code 1 says that it did not succeed."""
    if beta is not None and method not in _BETA:
        raise Problem(f"--beta cannot be combined with --method {method}.", USAGE)
    if bool(teacher) is not (method is MethodName.DISTILLATION):
        raise Problem("--teacher requires --method distillation.", USAGE)
    if (grader is None) is (method in _REWARDED):
        raise Problem("--grader requires --method reinforcement or rloo.", USAGE)
    if evaluation_grader is not None and not evaluation_file:
        raise Problem("--evaluation-grader requires --evaluation-file.", USAGE)
    hyperparameters = {
        "n_epochs": epochs,
        "batch_size": batch_size,
        "learning_rate_multiplier": learning_rate_multiplier,
    }
    request: Item = {
        "model": model,
        "suffix": suffix or None,
        "seed": seed,
        "metadata": pairs(metadata) or None,
        "training_file": _file(call, training_file),
        "validation_file": _file(call, validation_file) if validation_file else None,
        **(
            _method(method, hyperparameters, {"beta": beta, "teacher": teacher or None})
            if grader is None
            else _reinforcement(method, hyperparameters, grader)
        ),
    }
    amounts = {"nodes": nodes, "gpus": gpus, "cpus": cpus, "memory_bytes": memory}
    ours = {
        "backend": backend or None,
        "runtime": runtime or None,
        "export": [one.value for one in export or ()] or None,
        "resources": _given(amounts) or None,
        "evaluation": _evaluation(call, evaluation_file, evaluation_grader),
    }
    if given := _given(ours):
        request["windlass"] = {**request.get("windlass", {}), **given}
    job = call.client.jobs.create(
        {key: value for key, value in request.items() if value is not None}
    )
    if follow:
        finish(call, follow_job(call, job["id"]))
    else:
        call.out.item(job)
        call.out.note(f"Follow it: windlass jobs events -f {job['id']}")


def _method(method: MethodName, hyperparameters: Item, settings: Item) -> Item:
    """The request's fields that say how to train: OpenAI's, or ours."""
    if method in _OPENAI:
        given = _given(hyperparameters | settings)
        return {"method": {"type": method.value, method.value: {"hyperparameters": given}}}
    config = {name: value for name, value in _given(settings).items() if value != AUTO}
    windlass = {"method": method.value, "config": config}
    return {"hyperparameters": _given(hyperparameters), "windlass": windlass}


def _reinforcement(method: MethodName, hyperparameters: Item, grader: Path) -> Item:
    configuration = {"grader": _json(grader), "hyperparameters": _given(hyperparameters)}
    request: Item = {"method": {"type": "reinforcement", "reinforcement": configuration}}
    if method is MethodName.RLOO:
        request["windlass"] = {"method": method.value}
    return request


def _evaluation(call: Call, file: str, grader: Path | None) -> Item | None:
    if not file:
        return None
    given = {"grader": None if grader is None else _json(grader)}
    return {"file": _file(call, file), **_given(given)}


def _json(path: Path) -> Any:
    try:
        return json.loads(path.read_text())
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        raise Problem(f"{path} is not JSON: {error}.", USAGE) from None


def _given(values: Item) -> Item:
    return {name: value for name, value in values.items() if value is not None}


def _file(call: Call, given: str) -> str:
    path = Path(given)
    if path.is_file():
        return str(files.send(call, path, purpose="fine-tune")["id"])
    if "/" in given or path.suffix:
        near = [str(one) for one in path.parent.glob("*")] if path.parent.is_dir() else []
        raise Problem(f"There is no file {given}.{did_you_mean(given, near)}", USAGE)
    return file_id(call.client, given)
