"""`windlass models activate`, `deactivate` and `serving`: how models are served."""

from typing import Annotated, Any, cast

import typer

from windlass.bounds import (
    MAX_ENGINE_GPUS,
    MAX_ENGINE_NODES,
    MAX_IDLE_SECONDS,
    MAX_REPLICAS,
    MAX_TARGET_CACHE,
    MAX_TARGET_GPU,
    MAX_TARGET_REQUESTS,
    MAX_TARGET_WAIT_SECONDS,
    NORMAL_PRIORITY,
    TARGET_REQUESTS,
    EngineName,
    Priority,
)
from windlass.cli.framework import completion
from windlass.cli.framework.calling import Call
from windlass.cli.framework.columns import Item, field, moment
from windlass.cli.framework.listing import All, Limit, show_list
from windlass.cli.framework.values import size
from windlass.cli.models.arguments import changed
from windlass.client.display.text import human_size
from windlass.client.transport.urls import at

PATH = "/v1/servings"
Id = Annotated[str, typer.Argument(metavar="MODEL", autocompletion=completion.models)]
_ON_DEMAND = "on demand"
# Of a serving, beside its engine and its arguments, which may be unset.
_KEPT = (
    "min_replicas",
    "max_replicas",
    "target_requests",
    "target_cache",
    "target_gpu",
    "target_wait_seconds",
    "schedule",
    "idle_seconds",
    "sleep_seconds",
    "clusters",
    "gpus",
    "nodes",
    "accelerator",
    "memory_bytes",
    "priority",
    "dedicated",
    "training",
    "follow",
)
COLUMNS = {
    "MODEL": field("model"),
    "READY": lambda item: _ready(item),
    "TARGET": lambda item: _target(item),
    "ENGINE": field("engine"),
    "ARGUMENTS": lambda item: " ".join(f"{name}={value}" for name, value in _set(item).items()),
    "PRESET": lambda item: _by_preset(item),
    "SINCE": moment("updated_at"),
    "REASON": field("message"),
}


def activate(
    call: Call,
    model: Id,
    replicas: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=MAX_REPLICAS,
            help="Engines that run whether or not somebody asks; 0: on demand. Default: 1.",
        ),
    ] = None,
    max_replicas: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=MAX_REPLICAS,
            help="Engines that load may make of it; 0: no more than --replicas. Default: 0.",
        ),
    ] = None,
    target: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=MAX_TARGET_REQUESTS,
            help="Open requests that each engine should have; 0: eight. Default: 0.",
        ),
    ] = None,
    target_cache: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=MAX_TARGET_CACHE,
            help="Percent of each engine's room for keys and values that may be in use before load "
            "makes more engines; 0: however much is. Default: 90.",
        ),
    ] = None,
    target_gpu: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=MAX_TARGET_GPU,
            help="Percent of its GPUs' time that each engine may be busy before load makes more "
            "engines; 0: all of it. Default: 0.",
        ),
    ] = None,
    target_wait_seconds: Annotated[
        int | None,
        typer.Option(
            "--target-wait",
            min=0,
            max=MAX_TARGET_WAIT_SECONDS,
            help="Seconds that requests may wait for a busy engine before load makes more; 0: "
            "however long. Default: 0.",
        ),
    ] = None,
    schedule: Annotated[
        list[str] | None,
        typer.Option(
            metavar="'START;END;ZONE;N'",
            help="At least N engines from one time of cron to another, such as '0 8 * * 1-5;0 18 "
            "* * 1-5;Europe/Berlin;3'. May be repeated; all anew; '' for none.",
        ),
    ] = None,
    idle_seconds: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=MAX_IDLE_SECONDS,
            help="Seconds without requests before what nobody keeps running ends; 0: the "
            "server's. Default: 0.",
        ),
    ] = None,
    sleep_seconds: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=MAX_IDLE_SECONDS,
            help="Seconds without requests before its engines sleep, which wake for the next one; "
            "0: they do not. Default: 0.",
        ),
    ] = None,
    clusters: Annotated[
        list[str] | None,
        typer.Option(
            "--cluster",
            metavar="CLUSTER[=WEIGHT]",
            help="A cluster where its engines may run, by name or id, and its share of them. May "
            "be repeated; all anew; '' for any. Default: any.",
        ),
    ] = None,
    engine: Annotated[
        EngineName | None, typer.Option(help="Kind of engine. Default: the server's.")
    ] = None,
    arguments: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="NAME=VALUE",
            help="Argument of the engine, such as context_length=8192; NAME= takes one back. May "
            "be repeated.",
        ),
    ] = None,
    gpus: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=MAX_ENGINE_GPUS,
            help="GPUs of each engine, on each of its nodes. Default: one.",
        ),
    ] = None,
    nodes: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=MAX_ENGINE_NODES,
            help="Nodes that each engine runs on together, on Kubernetes. Default: one.",
        ),
    ] = None,
    accelerator: Annotated[
        str | None,
        typer.Option(
            help="Accelerator that each engine runs on, as `clusters get` names its products, "
            "resources and flavors; '' for any. Default: any.",
        ),
    ] = None,
    memory: Annotated[
        str | None,
        typer.Option(
            metavar="SIZE",
            help="Memory of each engine, such as 64Gi; 0: by its kind and its weights. Default: 0.",
        ),
    ] = None,
    priority: Annotated[
        Priority | None,
        typer.Option(help="Priority against other servings. Default: normal."),
    ] = None,
    dedicated: Annotated[
        bool | None,
        typer.Option(
            "--dedicated/--shared",
            help="Whether a fine-tuned model has engines of its own, which run its base and serve "
            "it alone. Default: shared.",
        ),
    ] = None,
    training: Annotated[
        str | None,
        typer.Option(
            metavar="hogwild|fenced|shadow|none",
            help="How its one engine may be trained while it serves: hogwild never pauses serving, "
            "fenced does for each step, shadow trains a copy and puts it in place. Default: none.",
        ),
    ] = None,
    follow: Annotated[
        str | None,
        typer.Option(
            metavar="tinker://RUN",
            help="Full-parameter run whose weights the engines take in place, version after "
            "version; '' for none. Default: none.",
        ),
    ] = None,
) -> None:
    """Sets how a model is served; what is not given stays as it is."""
    given = {
        "min_replicas": replicas,
        "max_replicas": max_replicas,
        "target_requests": target,
        "target_cache": target_cache,
        "target_gpu": target_gpu,
        "target_wait_seconds": target_wait_seconds,
        "idle_seconds": idle_seconds,
        "sleep_seconds": sleep_seconds,
        "engine": engine,
        "gpus": gpus,
        "nodes": nodes,
        "accelerator": accelerator,
        "memory_bytes": None if memory is None else size(memory),
        "priority": priority,
        "dedicated": dedicated,
        "training": "" if training == "none" else training,
        "follow": follow,
    }
    present = _present(call, model)
    if dedicated is False and present.get("dedicated"):
        # The rest was said of engines that are its own no longer.
        present = {"min_replicas": present["min_replicas"]}
    body = present | {name: value for name, value in given.items() if value is not None}
    if schedule is not None:
        body["schedule"] = [_window(text) for text in schedule if text]
    if clusters is not None:
        body["clusters"] = dict(_weighed(call, text) for text in clusters if text)
    if arguments:
        body["arguments"] = changed(body.get("arguments", {}), arguments)
    made = call.client.put(at(PATH, model), body)
    call.out.item(made)
    call.out.note(_state(made))


def deactivate(call: Call, model: Id) -> None:
    """Ends the engines of a model; a request starts one again, by the server's choices."""
    call.client.delete(at(PATH, model))
    call.out.note(f"{model} is served on demand.")


def serving(call: Call, limit: Limit = 100, everything: All = False) -> None:
    """Lists the models for which it is set how they are served."""
    show_list(call, call.client.pages(PATH), COLUMNS, limit=limit, everything=everything)


def _present(call: Call, model: str) -> dict[str, Any]:
    """The serving of a model as a request that would change nothing."""
    from windlass.client.errors import WindlassError

    try:
        found = call.client.get(at(PATH, model))
    except WindlassError as error:
        if error.code != "serving_not_found":
            raise
        return {"min_replicas": 1}
    arguments = {name: value for name, value in found["arguments"].items() if value is not None}
    body = {"arguments": arguments} | {name: found[name] for name in _KEPT if name in found}
    return body | ({"engine": found["engine"]} if found["engine"] else {})


def _weighed(call: Call, text: str) -> tuple[str, int]:
    """The id and the weight of `CLUSTER[=WEIGHT]`; raises BadParameter."""
    name, _, weight = text.partition("=")
    if weight and not weight.isdecimal():
        raise typer.BadParameter(f"{text!r} is no CLUSTER[=WEIGHT].", param_hint="--cluster")
    return call.client.clusters.find(name)["id"], int(weight or 1)


def _window(text: str) -> dict[str, Any]:
    """The window of `START;END;ZONE;N`; raises BadParameter."""
    parts = [part.strip() for part in text.split(";")]
    if len(parts) != 4 or not parts[3].isdecimal():
        raise typer.BadParameter(
            f"{text!r} is no START;END;ZONE;N, such as '0 8 * * 1-5;0 18 * * 1-5;UTC;3'.",
            param_hint="--schedule",
        )
    start, end, zone, replicas = parts
    return {"start": start, "end": end, "timezone": zone or "UTC", "replicas": int(replicas)}


def _set(item: Item) -> dict[str, Any]:
    arguments = cast("dict[str, Any]", item.get("arguments") or {})
    found = {name: value for name, value in arguments.items() if value is not None}
    found |= {name: item[name] for name in ("nodes", "gpus", "accelerator") if item.get(name)}
    if memory := item.get("memory_bytes"):
        found["memory"] = human_size(int(memory))
    if (priority := item.get("priority") or NORMAL_PRIORITY) != NORMAL_PRIORITY:
        found["priority"] = priority
    if item.get("dedicated"):
        found["dedicated"] = "yes"
    for name in ("training", "follow"):
        found |= {name: str(item[name])} if item.get(name) else {}
    return found


def _by_preset(item: Item) -> str:
    """The preset of a model, and what its engines have that nobody set; older servers say none."""
    derived = cast("dict[str, Any]", item.get("derived_arguments") or {})
    found = [f"{name}={value}" for name, value in derived.items() if value is not None]
    return " ".join([*filter(None, [cast("str", item.get("preset") or "")]), *found])


def _ready(item: Item) -> str:
    wanted, most = _wanted(item), item.get("max_replicas")
    if not wanted and not most:
        return _ON_DEMAND
    return f"{item['ready_replicas']}/{wanted}" + (f" of {most}" if most else "")


def _target(item: Item) -> str:
    """The load of each engine from which on more follow; empty where none do."""
    if not item.get("max_replicas"):
        return ""
    requests = item.get("target_requests") or TARGET_REQUESTS
    cache = f", cache {item['target_cache']}%" if item.get("target_cache") else ""
    gpu = f", GPU {item['target_gpu']}%" if item.get("target_gpu") else ""
    wait = f", wait {item['target_wait_seconds']} s" if item.get("target_wait_seconds") else ""
    return f"{requests} requests{cache}{gpu}{wait}"


def _wanted(item: Item) -> int:
    """The engines that should run now; an older server says how many at least."""
    return int(item.get("replicas") or item["min_replicas"])


def _state(item: Item) -> str:
    ready, wanted, most = item["ready_replicas"], _wanted(item), item.get("max_replicas")
    if not wanted:
        upto = f", by up to {most} engines" if most else ""
        return f"{item['model']} is served on demand{upto}."
    engines = "engine answers" if wanted == 1 else "engines answer"
    reason = f": {item['message']}" if item["message"] else ""
    upto = f"; load may make up to {most} of it" if most and most > wanted else ""
    return f"{ready} of {wanted} {engines}{reason}{upto}."
