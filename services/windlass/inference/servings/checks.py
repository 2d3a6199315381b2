"""Checks of a request to set how a model is served, each with the field that is at fault."""

import re
from collections.abc import Iterable

from pydantic import ValidationError

from windlass.api.clusters.v1 import clusters_pb2
from windlass.api.inference.v1 import inference_pb2 as pb
from windlass.api.models.v1 import models_pb2
from windlass.bounds import (
    ACCELERATOR_LENGTH,
    MAX_CLUSTER_WEIGHT,
    MAX_CLUSTERS,
    MAX_ENGINE_GPUS,
    MAX_ENGINE_MEMORY,
    MAX_ENGINE_NODES,
    MAX_IDLE_SECONDS,
    MAX_REPLICAS,
    MAX_TARGET_CACHE,
    MAX_TARGET_GPU,
    MAX_TARGET_REQUESTS,
    MAX_TARGET_WAIT_SECONDS,
    MIN_ENGINE_MEMORY,
    MIN_IDLE_SECONDS,
    MIN_SLEEP_SECONDS,
    NORMAL_PRIORITY,
    PRIORITIES,
    TARGET_CACHE,
)
from windlass.core.errors import InvalidArgument, PermissionDenied
from windlass.core.rpc.auth import Principal
from windlass.engine_arguments import (
    GROUPED,
    SLEEPING,
    TAKEN,
    EngineArguments,
    divided,
    from_message,
    not_taken,
    require_guesses,
)
from windlass.inference.domain import InferencePolicy, Serving, why_none_sleeps
from windlass.inference.names import quantization_of_model
from windlass.modelfiles.quantization import unreadable
from windlass.serving_schedules import (
    MAX_WINDOWS,
    ScheduleWindow,
    read_window,
)

# What of a serving is about engines, which those of a base have for its adapters too.
_OF_ENGINES = (
    "engine", "arguments", "gpus", "nodes", "accelerator", "memory_bytes", "priority",
    "max_replicas", "target_requests", "target_cache",
    "target_gpu", "target_wait_seconds", "schedule", "idle_seconds", "sleep_seconds", "clusters",
)  # fmt: skip
_ACCELERATOR = re.compile(rf"[A-Za-z0-9][A-Za-z0-9 ._/()+-]{{0,{ACCELERATOR_LENGTH - 1}}}")
# Of these, what is about their number and their time.
_OF_LOAD = frozenset(
    {
        "max_replicas", "target_requests", "target_cache", "target_gpu", "target_wait_seconds",
        "schedule", "idle_seconds",
    }
)  # fmt: skip
# The most of what is at least 0.
_MOST = {
    "min_replicas": MAX_REPLICAS,
    "target_requests": MAX_TARGET_REQUESTS,
    "target_cache": MAX_TARGET_CACHE,
    "target_gpu": MAX_TARGET_GPU,
    "target_wait_seconds": MAX_TARGET_WAIT_SECONDS,
    "gpus": MAX_ENGINE_GPUS,
    "nodes": MAX_ENGINE_NODES,
}


# What gateways of the release before do not know, and where nobody has said otherwise.
_USUAL: dict[str, str | int | bool] = {
    "target_cache": TARGET_CACHE, "target_gpu": 0, "target_wait_seconds": 0, "sleep_seconds": 0,
    "accelerator": "", "memory_bytes": 0, "priority": NORMAL_PRIORITY, "dedicated": False,
    "training": "",
    "follow": "",
}  # fmt: skip


def complete(request: pb.PutServingRequest, before: Serving | None) -> None:
    """Sets what a request leaves out as it was, or to what is usual."""
    said = {field.name for field, _ in request.ListFields()}
    for name, usual in _USUAL.items():
        if name not in said:
            setattr(request, name, usual if before is None else getattr(before, name))


def require_bounds(request: pb.PutServingRequest) -> None:
    """Raises InvalidArgument for a number out of its bounds, or an engine that is none."""
    for name, most in _MOST.items():
        if not 0 <= getattr(request, name) <= most:
            raise InvalidArgument(f"{name} must be 0 to {most}.", param=name)
    if request.max_replicas and not request.min_replicas <= request.max_replicas <= MAX_REPLICAS:
        raise InvalidArgument(
            f"max_replicas must be 0, or min_replicas to {MAX_REPLICAS}.", param="max_replicas"
        )
    if request.idle_seconds and not MIN_IDLE_SECONDS <= request.idle_seconds <= MAX_IDLE_SECONDS:
        raise InvalidArgument(
            f"idle_seconds must be 0, or {MIN_IDLE_SECONDS} to {MAX_IDLE_SECONDS}.",
            param="idle_seconds",
        )
    seconds = request.sleep_seconds
    if seconds and not MIN_SLEEP_SECONDS <= seconds <= MAX_IDLE_SECONDS:
        raise InvalidArgument(
            f"sleep_seconds must be 0, or {MIN_SLEEP_SECONDS} to {MAX_IDLE_SECONDS}.",
            param="sleep_seconds",
        )
    weights = request.clusters.values()
    if len(weights) > MAX_CLUSTERS or not all(1 <= one <= MAX_CLUSTER_WEIGHT for one in weights):
        raise InvalidArgument(
            f"clusters must be at most {MAX_CLUSTERS}, of weights from 1 to {MAX_CLUSTER_WEIGHT}.",
            param="clusters",
        )
    if request.engine and request.engine not in TAKEN:
        known = ", ".join(sorted(TAKEN))
        raise InvalidArgument(
            f"There is no engine {request.engine[:64]!r}; the engines are {known}.", param="engine"
        )


def require_needs(request: pb.PutServingRequest) -> None:
    """Raises InvalidArgument for an accelerator, memory or a priority that cannot be."""
    if not is_accelerator(request.accelerator):
        raise InvalidArgument(
            f"accelerator must be a name of at most {ACCELERATOR_LENGTH} letters, digits, spaces "
            "and '._/()+-', as a cluster reports it.",
            param="accelerator",
        )
    memory = request.memory_bytes
    if memory and not MIN_ENGINE_MEMORY <= memory <= MAX_ENGINE_MEMORY:
        raise InvalidArgument(
            f"memory_bytes must be 0, or {MIN_ENGINE_MEMORY} to {MAX_ENGINE_MEMORY}.",
            param="memory_bytes",
        )
    if request.priority not in PRIORITIES:
        known = ", ".join(PRIORITIES)
        raise InvalidArgument(f"priority must be one of {known}.", param="priority")


def is_accelerator(name: str) -> bool:
    """Returns True for what may be the name of an accelerator; the empty one counts."""
    return not name or _ACCELERATOR.fullmatch(name) is not None


def schedule_of(request: pb.PutServingRequest) -> tuple[ScheduleWindow, ...]:
    """The windows of a request; raises InvalidArgument for what is no time or no zone."""
    if len(request.schedule) > MAX_WINDOWS:
        raise InvalidArgument(f"A schedule has at most {MAX_WINDOWS} windows.", param="schedule")
    windows: list[ScheduleWindow] = []
    for number, message in enumerate(request.schedule):
        try:
            windows.append(read_window(message))
        except ValidationError as error:
            first = error.errors()[0]
            name = f"schedule.{number}.{first['loc'][0]}"
            said = first["msg"].removeprefix("Value error, ")
            raise InvalidArgument(f"{name}: {said}.", param=name) from error
        if request.max_replicas and windows[-1].replicas > request.max_replicas:
            name = f"schedule.{number}.replicas"
            raise InvalidArgument(f"{name} must be at most max_replicas.", param=name)
    return tuple(windows)


def arguments_of(request: pb.PutServingRequest, engine: str) -> EngineArguments:
    """The arguments of a request; raises InvalidArgument for what the engine does not take."""
    try:
        arguments = from_message(request.arguments)
    except ValidationError as error:
        first = error.errors()[0]
        name = ".".join(("arguments", *map(str, first["loc"])))
        raise InvalidArgument(f"{name}: {first['msg']}.", param=name) from error
    if refused := not_taken(engine, arguments):
        taken = ", ".join(sorted(TAKEN[engine]))
        raise InvalidArgument(
            f"The engine {engine!r} takes no {refused}; it takes {taken}.",
            param=f"arguments.{refused}",
        )
    return arguments


def require_group(request: pb.PutServingRequest, engine: str, arguments: EngineArguments) -> None:
    """Raises InvalidArgument for several nodes of an engine that runs on one, or that it cannot
    be divided over.
    """
    if request.nodes > 1 and engine != GROUPED:
        raise InvalidArgument(
            f"The engine {engine!r} runs on one node; {GROUPED!r} runs on several.", param="nodes"
        )
    if not request.gpus:
        # What the engine gets, its cluster decides.
        return
    try:
        divided(arguments, request.gpus, max(1, request.nodes))
    except ValueError as error:
        raise InvalidArgument(str(error), param="arguments") from error


def require_guesser(request: pb.PutServingRequest, arguments: EngineArguments) -> None:
    """Raises InvalidArgument for arguments by which no draft can guess."""
    try:
        require_guesses(arguments, max(1, request.nodes))
    except ValueError as error:
        name, _, _ = str(error).partition(" ")
        raise InvalidArgument(str(error), param=f"arguments.{name}") from error


def require_sleep(
    request: pb.PutServingRequest,
    policy: InferencePolicy,
    clusters: Iterable[clusters_pb2.Cluster],
) -> None:
    """Raises InvalidArgument where a serving's engines should sleep, and cannot or never would."""
    if not request.sleep_seconds:
        return
    engine, idle = request.engine or policy.engine, request.idle_seconds or policy.idle_seconds
    if engine not in SLEEPING:
        able = ", ".join(sorted(SLEEPING))
        refusal = f"Engines of the kind {engine!r} cannot sleep; those of {able} can."
    elif request.nodes > 1:
        refusal = "Engines on several nodes cannot sleep."
    elif not request.min_replicas and request.sleep_seconds >= idle:
        refusal = f"sleep_seconds must be less than the {idle:g} seconds after which engines end."
    else:
        refusal = why_none_sleeps(engine, clusters)
    if refusal:
        raise InvalidArgument(refusal, param="sleep_seconds")


def require_plain(
    request: pb.PutServingRequest,
    model: models_pb2.Model,
    base: models_pb2.Model,
    *,
    is_copy: bool,
) -> None:
    """Raises InvalidArgument where an adapter is told how the engines of its base run."""
    own: frozenset[str] = frozenset()
    where = f"whose engines answer for it; set {{name}} for {base.id}"
    if is_copy:
        where = "and its merged copy has engines like those; only min_replicas can be set for it"
    elif request.dedicated:
        own = _OF_LOAD
        where = f"and its own engines run like those; set {{name}} for {base.id}"
    default = pb.PutServingRequest()
    complete(default, None)
    for name in _OF_ENGINES:
        if name not in own and getattr(request, name) != getattr(default, name):
            raise InvalidArgument(
                f"{model.id} is an adapter of {base.id}, {where.format(name=name)}.", param=name
            )


def require_adapter(
    request: pb.PutServingRequest, model: models_pb2.Model, base: models_pb2.Model
) -> None:
    """Raises InvalidArgument for a dedicated model that shares its engines with no other."""
    if request.dedicated and not base.id:
        raise InvalidArgument(
            f"{model.id} is no adapter of another model: its engines serve it alone already.",
            param="dedicated",
        )


def require_follower(
    request: pb.PutServingRequest, model: models_pb2.Model, base: models_pb2.Model
) -> None:
    """Raises InvalidArgument for a model whose engines cannot follow a project's run."""
    refusal = ""
    if not model.project_id:
        refusal = f"{model.id} is for everyone; import it for the project that follows a run."
    elif base.id:
        refusal = f"{model.id} is an adapter of {base.id}; full weights follow a run."
    elif request.nodes > 1:
        refusal = "Engines on several nodes take no weights in place."
    if refusal:
        raise InvalidArgument(refusal, param="follow")


def require_own_engines(model: models_pb2.Model) -> None:
    """Raises InvalidArgument for a model whose engines somebody else runs."""
    if model.kind == models_pb2.MODEL_KIND_ADOPTED:
        raise InvalidArgument(
            f"{model.id} is served by a serving stack that Windlass does not run; there is nothing "
            "to set.",
            param="model",
        )


def require_readable(model: models_pb2.Model, engine: str) -> None:
    """Raises InvalidArgument for weights that a kind of engine cannot read."""
    if why := unreadable(quantization_of_model(model), engine):
        raise InvalidArgument(f"{model.id}: {why}", param="engine")


def require_experts(model: models_pb2.Model, arguments: EngineArguments) -> None:
    """Raises InvalidArgument for experts to divide of a model that has none."""
    # What no import has counted, the engine judges.
    if arguments.expert_parallel and model.footprint.experts == 1:
        raise InvalidArgument(
            f"{model.id} has no experts, by its config.json; expert_parallel divides those of a "
            "mixture of experts.",
            param="arguments.expert_parallel",
        )


def require_own(principal: Principal, project_id: str) -> None:
    """Raises PermissionDenied for a model that is not the caller's to set."""
    if project_id == principal.project_id or (not project_id and principal.may("platform.write")):
        return
    if project_id:
        raise PermissionDenied(
            "The model belongs to another project, which alone may set how it is served.",
            param="model",
        )
    raise PermissionDenied(
        "Only platform administrators may set how a model for everyone is served.", param="model"
    )


def require_base(principal: Principal, model: models_pb2.Model, base: models_pb2.Model) -> None:
    """Raises PermissionDenied where engines of a base that others use as well would be kept."""
    if base.project_id or not principal.may("platform.write"):
        raise PermissionDenied(
            f"{model.id} is an adapter of {base.id}, which is not the project's own; engines of "
            "that run on demand, or an operator keeps them running.",
            param="model",
        )
