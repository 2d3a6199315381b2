"""`windlass models fit`."""

import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from windlass.bounds import MAX_ENGINE_NODES
from windlass.cli.framework import completion
from windlass.cli.framework.calling import Call
from windlass.cli.framework.columns import Item, field
from windlass.cli.framework.failures import USAGE, Problem
from windlass.cli.framework.values import size
from windlass.cli.models.arguments import changed
from windlass.client.transport.urls import at

if TYPE_CHECKING:
    from windlass.engine_arguments import EngineArguments
    from windlass.modelfiles.footprint import Footprint
    from windlass.serving_fit import DoesNotFit, Fit

_GIB = 2**30


def _gib(name: str) -> Callable[[Item], str]:
    return lambda item: f"{item[name] / _GIB:.1f}" if name in item else "-"


_DRAFT = "DRAFT GIB"
_COLUMNS = {
    "GPUS": lambda item: f"{item['nodes']}x" * (item["nodes"] > 1) + str(item["gpus"]),
    "WEIGHTS GIB": _gib("weight_bytes"),
    _DRAFT: _gib("draft_bytes"),
    "ADAPTERS GIB": _gib("adapter_bytes"),
    "CACHE GIB": _gib("cache_bytes"),
    "CONTEXT": field("context_length"),
    "REQUESTS": lambda item: f"{item['requests']:.1f}" if "requests" in item else "-",
    "REASON": field("reason"),
}


def fit(
    call: Call,
    model: Annotated[str, typer.Argument(metavar="MODEL|FOLDER", autocompletion=completion.models)],
    gpu_memory: Annotated[
        str, typer.Option(metavar="SIZE", help="Memory of each GPU, such as 24Gi.")
    ],
    gpus: Annotated[int, typer.Option(min=1, max=64, help="GPUs of one machine.")] = 8,
    nodes: Annotated[
        int,
        typer.Option(min=1, max=MAX_ENGINE_NODES, help="Machines that serve it together."),
    ] = 1,
    arguments: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="NAME=VALUE",
            help="Argument of the engine, such as context_length=8192. May be repeated.",
        ),
    ] = None,
    adapters: Annotated[int, typer.Option(min=0, max=256, help="Adapters at once.")] = 4,
) -> None:
    """Estimates on how many GPUs vLLM serves a model, with which context, before it starts."""
    from windlass.serving_fit import fits

    given = _arguments(arguments or [], nodes)
    draft = _footprint(call, given.draft_model) if given.draft_model else None
    found = fits(
        _footprint(call, model),
        devices=gpus,
        memory_bytes=size(gpu_memory),
        arguments=given,
        adapters=adapters,
        nodes=nodes,
        draft=draft,
    )
    rows = [_row(2**exponent, one) | {"nodes": nodes} for exponent, one in enumerate(found)]
    shown = {name: column for name, column in _COLUMNS.items() if name != _DRAFT or draft}
    call.out.items(rows, shown)
    if not any(row["fits"] for row in rows):
        raise Problem("The model fits on none of them.")
    call.out.note(
        "REQUESTS of the whole CONTEXT are held at once. An estimate: vLLM measures when it starts."
    )


def _row(gpus: int, one: "Fit | DoesNotFit") -> dict[str, Any]:
    from windlass.serving_fit import Fit

    if isinstance(one, Fit):
        return {"gpus": gpus, "fits": True} | asdict(one)
    return {"gpus": gpus, "fits": False, "reason": str(one)}


def _footprint(call: Call, model: str) -> "Footprint":
    """Returns what a folder or a registered model takes; raises Problem where that is not known."""
    from windlass.modelfiles.footprint import Footprint

    if Path(model).is_dir():
        return _of_folder(Path(model))
    about = call.client.get(at("/v1/models", model))["windlass"]
    if about["kind"] == "adapter":
        about = call.client.get(at("/v1/models", about["base_model"]))["windlass"]
    if not about["footprint"]:
        raise Problem(
            f"What {model!r} takes is not known: no import looked at its files. Give its folder."
        )
    return Footprint(**about["footprint"])


def _of_folder(folder: Path) -> "Footprint":
    from windlass.modelfiles import loaded
    from windlass.modelfiles.footprint import footprint

    sizes = {one.name: one.stat().st_size for one in folder.iterdir()}
    weights = sum(sizes[name] for name in loaded(sizes))
    if not weights:
        raise Problem(f"{folder} has no weights in safetensors or GGUF.", USAGE)
    try:
        config = json.loads((folder / "config.json").read_bytes())
        if not isinstance(config, dict):
            raise ValueError("config.json is no JSON object.")
        return footprint(config, weights)
    except (OSError, ValueError) as error:
        raise Problem(f"{folder} cannot be estimated: {error}", USAGE) from error


def _arguments(texts: list[str], nodes: int) -> "EngineArguments":
    from pydantic import ValidationError

    from windlass.engine_arguments import EngineArguments, require_guesses

    try:
        given = EngineArguments(**changed({}, texts))
        require_guesses(given, nodes)
        return given
    except ValidationError as error:
        first = error.errors()[0]
        raise typer.BadParameter(
            f"{'.'.join(map(str, first['loc']))}: {first['msg']}.", param_hint="--set"
        ) from error
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--set") from error
