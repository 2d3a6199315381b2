"""`windlass engines train`, `checkpoint`, `trainings`, `steps` and `cancel`."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from windlass.cli.framework import completion
from windlass.cli.framework.calling import Call
from windlass.cli.framework.columns import Columns, Item, field, moment
from windlass.cli.framework.failures import Problem
from windlass.cli.framework.listing import All, Limit, show_list
from windlass.client.transport.urls import at

PATH = "/v1/engines"
TRAININGS = f"{PATH}/trainings"
Model = Annotated[str, typer.Argument(metavar="MODEL", autocompletion=completion.models)]
Id = Annotated[str, typer.Argument(metavar="TRAINING")]
Key = Annotated[
    str, typer.Option("--idempotency-key", help="The same request under it is done once.")
]
Wait = Annotated[bool, typer.Option("--wait/--no-wait", help="Wait until it has ended.")]
_COLUMNS: Columns = {
    "ID": field("id"),
    "MODEL": field("model"),
    "KIND": lambda item: "checkpoint" if item["is_checkpoint"] else str(item["mode"]),
    "STATE": field("state"),
    "STEPS": lambda item: f"{item['steps']}/{item['total_steps']}" if item["total_steps"] else "",
    "LOSS": lambda item: "" if item["loss"] is None else f"{item['loss']:.4g}",
    "BECAME": field("checkpoint_model"),
    "CREATED": moment("created_at"),
    "REASON": field("message"),
}


def train(
    call: Call,
    model: Model,
    request: Annotated[
        Path,
        typer.Argument(
            metavar="FILE",
            exists=True,
            dir_okay=False,
            help="JSON with samples or datums, and settings where they differ from the usual ones.",
        ),
    ],
    key: Key = "",
    wait: Wait = False,
) -> None:
    """Trains the engine of a model while it serves."""
    try:
        body = json.loads(request.read_text())
    except (OSError, ValueError) as error:
        raise Problem(f"{request} cannot be read: {error}") from error
    if not isinstance(body, dict):
        raise Problem(f"{request} holds no object of JSON.")
    body |= {"idempotency_key": key} if key else {}
    _finish(call, call.client.post(at(PATH, model, "train"), body), wait=wait)


def checkpoint(
    call: Call,
    model: Model,
    suffix: Annotated[
        str, typer.Option(help="The end of the name of the model that it becomes.")
    ] = "trained",
    key: Key = "",
    wait: Wait = False,
) -> None:
    """Makes the weights of a model's engine, as it has learned them, a model of its own."""
    body = {"suffix": suffix, "idempotency_key": key}
    _finish(call, call.client.post(at(PATH, model, "checkpoint"), body), wait=wait)


def trainings(
    call: Call,
    model: Annotated[str, typer.Option(help="Of this model alone.")] = "",
    limit: Limit = 20,
    everything: All = False,
) -> None:
    """Lists trainings and checkpoints of engines, newest first."""
    found = call.client.pages(TRAININGS, model=model)
    show_list(call, found, _COLUMNS, limit=limit, everything=everything)


def steps(
    call: Call,
    training: Id,
    after: Annotated[int, typer.Option(min=0, help="Only steps after this one.")] = 0,
) -> None:
    """Shows the steps of a training, each as it is done, until it has ended."""
    for told in _told(call, training, after):
        if "step" in told:
            call.out.stream(told, _line(told))
            sys.stdout.flush()


def cancel(call: Call, training: Id) -> None:
    """Ends a training at its next step; what it has learned stays."""
    call.out.item(call.client.post(at(TRAININGS, training, "cancel")))


def _finish(call: Call, made: Item, *, wait: bool) -> None:
    if wait:
        with call.out.waiting("waiting for the engine"):
            *_, made = _told(call, str(made["id"]), 0)
    call.out.item(made)
    if made["state"] == "failed":
        raise Problem(f"{made['id']} failed: {made['message'] or made['reason']}")


def _line(step: Item) -> str:
    measured = ((name, step[name]) for name in ("held_out_loss", "kl"))
    return (
        f"step {step['step']}  loss {step['loss']:.6g}  {step['tokens']} tokens  "
        f"{step['seconds']:.3g} s"
        + "".join(f"  {name} {value:.6g}" for name, value in measured if value is not None)
    )


def _told(call: Call, training: str, after: int) -> Iterator[dict[str, Any]]:
    """Steps of a training until it has ended, and the training."""
    from windlass.client.transport import sse

    with call.client.stream(at(TRAININGS, training, "steps"), after=after) as response:
        yield from sse.read(response)
