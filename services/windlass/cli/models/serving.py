"""`windlass models activate`, `deactivate` and `serving`: how models are served."""

from typing import Annotated, Any, cast

import typer
from pydantic import ValidationError

from windlass.bounds import MAX_ENGINE_GPUS, MAX_REPLICAS
from windlass.cli.framework import completion
from windlass.cli.framework.calling import Call
from windlass.cli.framework.columns import Item, field, moment
from windlass.cli.framework.listing import All, Limit, show_list
from windlass.cli.framework.values import pairs, size
from windlass.client.transport.urls import at
from windlass.core.suggestions import did_you_mean
from windlass.engine_arguments import EngineArguments, EngineName, chosen

PATH = "/v1/servings"
Id = Annotated[str, typer.Argument(metavar="MODEL", autocompletion=completion.models)]
_ON_DEMAND = "on demand"
_COLUMNS = {
    "MODEL": field("model"),
    "READY": lambda item: _ready(item),
    "ENGINE": field("engine"),
    "ARGUMENTS": lambda item: " ".join(f"{name}={value}" for name, value in _set(item).items()),
    "SINCE": moment("updated_at"),
    "REASON": field("message"),
}


def activate(
    call: Call,
    model: Id,
    replicas: Annotated[
        int,
        typer.Option(
            min=0,
            max=MAX_REPLICAS,
            help="Engines that run whether or not somebody asks; 0: on demand.",
        ),
    ] = 1,
    engine: Annotated[
        EngineName | None, typer.Option(help="Kind of engine. Default: the server's.")
    ] = None,
    arguments: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="NAME=VALUE",
            help="Argument of the engine, such as context_length=8192. May be repeated.",
        ),
    ] = None,
    gpus: Annotated[
        int, typer.Option(min=0, max=MAX_ENGINE_GPUS, help="GPUs of each engine. Default: one.")
    ] = 0,
) -> None:
    """Sets how a model is served; again with other values."""
    body: dict[str, Any] = {"min_replicas": replicas}
    if engine:
        body["engine"] = engine
    if arguments:
        body["arguments"] = chosen(_arguments(arguments))
    if gpus:
        body["gpus"] = gpus
    made = call.client.put(at(PATH, model), body)
    call.out.item(made)
    call.out.note(_state(made))


def deactivate(call: Call, model: Id) -> None:
    """Ends the engines of a model; a request starts one again, by the server's choices."""
    call.client.delete(at(PATH, model))
    call.out.note(f"{model} is served on demand.")


def serving(call: Call, limit: Limit = 100, everything: All = False) -> None:
    """Lists the models for which it is set how they are served."""
    show_list(call, call.client.pages(PATH), _COLUMNS, limit=limit, everything=everything)


def _arguments(texts: list[str]) -> EngineArguments:
    """The arguments of `NAME=VALUE` texts; raises BadParameter that names the first wrong one."""
    given = pairs(texts)
    known = EngineArguments.model_fields
    for name, value in given.items():
        if name not in known:
            raise typer.BadParameter(
                f"There is no argument {name!r}.{did_you_mean(name, known)}", param_hint="--set"
            )
        if name.endswith("_bytes"):
            given[name] = str(size(value))
    try:
        return EngineArguments.model_validate_strings(given, strict=False)
    except ValidationError as error:
        first = error.errors()[0]
        name = str(first["loc"][0])
        said = first["msg"].removeprefix("Input should be ")
        raise typer.BadParameter(
            f"{name}: expected {said}, got {given[name]!r}.", param_hint="--set"
        ) from None


def _set(item: Item) -> dict[str, Any]:
    arguments = cast("dict[str, Any]", item.get("arguments") or {})
    found = {name: value for name, value in arguments.items() if value is not None}
    return found | ({"gpus": item["gpus"]} if item.get("gpus") else {})


def _ready(item: Item) -> str:
    wanted = item["min_replicas"]
    return f"{item['ready_replicas']}/{wanted}" if wanted else _ON_DEMAND


def _state(item: Item) -> str:
    ready, wanted = item["ready_replicas"], item["min_replicas"]
    if not wanted:
        return f"{item['model']} is served on demand."
    engines = "engine answers" if wanted == 1 else "engines answer"
    reason = f": {item['message']}" if item["message"] else ""
    return f"{ready} of {wanted} {engines}{reason}."
