"""`windlass jobs create`."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from windlass.cli import completion, files
from windlass.cli.calling import Call
from windlass.cli.columns import Item
from windlass.cli.failures import USAGE, Problem
from windlass.cli.job_following import finish, follow_job
from windlass.cli.prefixes import file_id
from windlass.cli.values import pairs, real, size, whole


class Method(StrEnum):
    """How to train."""

    SUPERVISED = "supervised"
    DPO = "dpo"


_FILE = "A path, which is uploaded, or a file's id."
Whole = Annotated[str | None, typer.Option(parser=whole, metavar="NUMBER|auto")]
Real = Annotated[str | None, typer.Option(parser=real, metavar="NUMBER|auto")]


def create(
    call: Call,
    model: Annotated[str, typer.Option(help="Base.", autocompletion=completion.models)],
    training_file: Annotated[str, typer.Option(help=_FILE, autocompletion=completion.files)],
    validation_file: Annotated[str, typer.Option(help=_FILE, autocompletion=completion.files)] = "",
    suffix: Annotated[str, typer.Option(help="Part of the new model's name.")] = "",
    method: Annotated[Method, typer.Option(help="How to train.")] = Method.SUPERVISED,
    epochs: Whole = None,
    batch_size: Whole = None,
    learning_rate_multiplier: Real = None,
    beta: Annotated[
        str | None, typer.Option(parser=real, metavar="NUMBER|auto", help="For dpo alone.")
    ] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="Drawn if left out.")] = None,
    gpus: Annotated[int | None, typer.Option(min=0, help="Of each node.")] = None,
    cpus: Annotated[int | None, typer.Option(min=0, help="Of each node.")] = None,
    memory: Annotated[
        str | None, typer.Option(parser=size, metavar="SIZE", help="Of each node: 64GiB.")
    ] = None,
    metadata: Annotated[
        list[str] | None, typer.Option(metavar="KEY=VALUE", help="May repeat.")
    ] = None,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Show its progress until it ends.")
    ] = False,
) -> None:
    """Creates a job; with --follow exit code 1 says that it did not succeed."""
    if beta is not None and method is not Method.DPO:
        raise Problem("--beta is for --method dpo.", USAGE)
    hyperparameters = {
        "n_epochs": epochs,
        "batch_size": batch_size,
        "learning_rate_multiplier": learning_rate_multiplier,
        "beta": beta,
    }
    request = {
        "model": model,
        "suffix": suffix or None,
        "seed": seed,
        "metadata": pairs(metadata) or None,
        "method": _method(method, hyperparameters),
        "training_file": _file(call, training_file),
        "validation_file": _file(call, validation_file) if validation_file else None,
        "windlass": _resources(gpus=gpus, cpus=cpus, memory_bytes=memory),
    }
    job = call.client.jobs.create(
        {key: value for key, value in request.items() if value is not None}
    )
    if follow:
        finish(call, follow_job(call, job["id"]))
    else:
        call.out.item(job)
        call.out.note(f"Follow it: windlass jobs events -f {job['id']}")


def _method(method: Method, hyperparameters: dict[str, Any]) -> Item:
    given = {name: value for name, value in hyperparameters.items() if value is not None}
    return {"type": method.value, method.value: {"hyperparameters": given}}


def _resources(**amounts: Any) -> Item | None:
    given = {name: amount for name, amount in amounts.items() if amount is not None}
    return {"resources": given} if given else None


def _file(call: Call, given: str) -> str:
    path = Path(given)
    if path.is_file():
        return str(files.send(call, path, purpose="fine-tune")["id"])
    if "/" in given or path.suffix:
        raise Problem(f"There is no file {given}.", USAGE)
    return file_id(call.client, given)
