"""Requests that set, show and end how models are served."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

from pydantic import ValidationError

from windlass.api.inference.v1 import inference_pb2 as pb
from windlass.api.models.v1 import models_pb2
from windlass.api.models.v1.models_pb2_grpc import ModelsInternalServiceAsyncStub
from windlass.bounds import (
    MAX_CLUSTER_WEIGHT,
    MAX_CLUSTERS,
    MAX_ENGINE_GPUS,
    MAX_IDLE_SECONDS,
    MAX_REPLICAS,
    MAX_TARGET_CACHE,
    MAX_TARGET_REQUESTS,
    MIN_IDLE_SECONDS,
    TARGET_CACHE,
)
from windlass.core.db.paging import page_of
from windlass.core.db.wake import Wake
from windlass.core.errors import InvalidArgument, NotFound, PermissionDenied
from windlass.core.quotas import Quota, exceeded
from windlass.core.rpc.auth import Principal, current
from windlass.engine_arguments import (
    TAKEN,
    EngineArguments,
    from_message,
    not_taken,
    to_message,
)
from windlass.inference.domain import (
    InferencePolicy,
    Name,
    Rows,
    Serving,
    View,
    engine_bound,
    kept_engines,
)
from windlass.inference.observed_state import ObservedState
from windlass.inference.routing import hindrance
from windlass.inference.serving_store import ServingStore
from windlass.inference.store import InferenceStore
from windlass.serving_schedules import (
    MAX_WINDOWS,
    ScheduleWindow,
    read_window,
    window_messages,
)

# What of a serving is about engines, which those of a base have for its adapters too.
_OF_ENGINES = (
    "engine", "arguments", "gpus", "max_replicas", "target_requests", "target_cache", "schedule",
    "idle_seconds", "clusters",
)  # fmt: skip
# The most of what is at least 0.
_MOST = {
    "min_replicas": MAX_REPLICAS,
    "target_requests": MAX_TARGET_REQUESTS,
    "target_cache": MAX_TARGET_CACHE,
    "gpus": MAX_ENGINE_GPUS,
}


class ServingRequests:
    """The part of InferenceService that is about servings."""

    def __init__(
        self,
        store: InferenceStore,
        servings: ServingStore,
        observed: ObservedState,
        models: ModelsInternalServiceAsyncStub,
        wake: Wake,
        policy: InferencePolicy,
    ):
        self._store = store
        self._servings = servings
        self._observed = observed
        self._models = models
        self._wake = wake
        self._policy = policy

    async def put(self, request: pb.PutServingRequest) -> pb.Serving:
        """Sets how a model is served; raises InvalidArgument, and `quota_exceeded` for too much."""
        principal = current()
        if not request.HasField("target_cache"):
            request.target_cache = TARGET_CACHE
        _require_bounds(request)
        arguments = _arguments(request, request.engine or self._policy.engine)
        resolved = await self._resolve(principal, request.model)
        model, base = resolved.model, resolved.base.model
        _require_own(principal, model.project_id)
        _require_own_engines(model)
        serving = Serving(
            project_id=model.project_id,
            model=model.id,
            organization_id=model.organization_id,
            version_id=model.version_id,
            engine_version_id=base.version_id or model.version_id,
            min_replicas=request.min_replicas,
            updated_at=0.0,
            engine=request.engine,
            arguments=arguments,
            gpus=request.gpus,
            max_replicas=request.max_replicas,
            target_requests=request.target_requests,
            target_cache=request.target_cache,
            schedule=_schedule(request),
            idle_seconds=request.idle_seconds,
            clusters=tuple(request.clusters.items()),
        )
        names = await self._names_with(serving)
        name = names.get(serving.version_id)
        is_copy = name is not None and bool(name.copied_from)
        if base.id:
            _require_plain(request, model, base, is_copy=is_copy)
        if base.id and base.project_id != model.project_id and not is_copy:
            _require_base(principal, model, base)
        await self._servings.put(serving, partial(self._require_room, names))
        self._wake.touch("inference")
        rows = await self._store.rows()
        return _shown(_set_for(model, rows), rows, await self._observed.known_view(rows))

    async def get(self, request: pb.GetServingRequest) -> pb.Serving:
        """Returns how a model is served; raises NotFound where it is on demand alone."""
        serving, rows = await self._found(current(), request.model)
        return _shown(serving, rows, await self._observed.known_view(rows))

    async def list(self, request: pb.ListServingsRequest) -> pb.ListServingsResponse:
        """The servings of the project's models and of those for everyone, by name."""
        rows = await self._store.rows()
        view = await self._observed.known_view(rows)
        seen = sorted(rows.visible(current().require_project()).values(), key=lambda one: one.model)
        seen, more = page_of(seen, lambda one: one.model, after=request.after, limit=request.limit)
        return pb.ListServingsResponse(
            servings=[_shown(serving, rows, view) for serving in seen], has_more=more
        )

    async def delete(self, request: pb.DeleteServingRequest) -> pb.DeleteServingResponse:
        """Ends what nobody asks for of a model; raises NotFound where it is on demand alone."""
        principal = current()
        serving, _ = await self._found(principal, request.model)
        _require_own(principal, serving.project_id)
        await self._servings.delete(serving)
        self._wake.touch("inference")
        return pb.DeleteServingResponse()

    async def _resolve(self, principal: Principal, model: str) -> models_pb2.ResolvedModel:
        return await self._models.ResolveModel(
            models_pb2.ResolveModelRequest(project_id=principal.require_project(), id=model)
        )

    async def _found(self, principal: Principal, name: str) -> tuple[Serving, Rows]:
        """The serving of a model as its name is resolved, and every row."""
        model = (await self._resolve(principal, name)).model
        rows = await self._store.rows()
        return _set_for(model, rows), rows

    async def _names_with(self, serving: Serving) -> Mapping[str, Name]:
        """The names as they are once a serving is set: it may say what adapters are copies."""
        rows = await self._store.rows()
        key = (serving.project_id, serving.model)
        others = [one for one in rows.servings if (one.project_id, one.model) != key]
        asked = replace(rows, servings=[*others, serving])
        return (await self._observed.known_view(asked)).names

    def _require_room(
        self,
        names: Mapping[str, Name],
        serving: Serving,
        others: Sequence[Serving],
        quotas: Mapping[str, int],
    ) -> None:
        """Raises where more would be kept running than may run at once."""
        serving, *others = (one.by_name(names) for one in (serving, *others))
        for scope in ("project", "organization"):
            identifier = getattr(serving, f"{scope}_id") if serving.project_id else ""
            bound = engine_bound(quotas, scope, identifier)
            own = [one for one in others if one.project_id]
            own = [one for one in own if getattr(one, f"{scope}_id") == identifier]
            if bound and (kept := kept_engines([*own, serving])) > bound:
                raise exceeded(Quota.ENGINES, scope, kept, bound)
        kept, most = kept_engines([*others, serving]), self._policy.max_engines
        if kept > most:
            raise InvalidArgument(
                f"{kept} engines would be kept running; this installation runs at most {most} "
                "(inference.max_engines).",
                param="min_replicas",
            )
        beside = [
            one for one in others if one.peak and one.engine_version_id == serving.engine_version_id
        ]
        if serving.peak and len(beside) >= self._policy.max_adapters:
            raise InvalidArgument(
                f"At most {self._policy.max_adapters} models of one base can be kept running "
                "(inference.max_adapters).",
                param="model",
            )


def _require_bounds(request: pb.PutServingRequest) -> None:
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


def _schedule(request: pb.PutServingRequest) -> tuple[ScheduleWindow, ...]:
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


def _arguments(request: pb.PutServingRequest, engine: str) -> EngineArguments:
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


def _require_plain(
    request: pb.PutServingRequest,
    model: models_pb2.Model,
    base: models_pb2.Model,
    *,
    is_copy: bool,
) -> None:
    """Raises InvalidArgument where an adapter is told how the engines of its base run."""
    where = f"whose engines answer for it; set {{name}} for {base.id}"
    if is_copy:
        where = "and its merged copy has engines like those; only min_replicas can be set for it"
    default = pb.PutServingRequest(target_cache=TARGET_CACHE)
    for name in _OF_ENGINES:
        if getattr(request, name) != getattr(default, name):
            raise InvalidArgument(
                f"{model.id} is an adapter of {base.id}, {where.format(name=name)}.", param=name
            )


def _require_own_engines(model: models_pb2.Model) -> None:
    """Raises InvalidArgument for a model whose engines somebody else runs."""
    if model.kind == models_pb2.MODEL_KIND_ADOPTED:
        raise InvalidArgument(
            f"{model.id} is served by a serving stack that Windlass does not run; there is nothing "
            "to set.",
            param="model",
        )


def _set_for(model: models_pb2.Model, rows: Rows) -> Serving:
    for serving in rows.servings:
        if (serving.project_id, serving.model) == (model.project_id, model.id):
            return serving
    raise NotFound(
        f"No engine of {model.id!r} is set to run; a request starts one.",
        reason="serving_not_found",
        param="model",
    )


def _require_own(principal: Principal, project_id: str) -> None:
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


def _require_base(principal: Principal, model: models_pb2.Model, base: models_pb2.Model) -> None:
    """Raises PermissionDenied where engines of a base that others use as well would be kept."""
    if base.project_id or not principal.may("platform.write"):
        raise PermissionDenied(
            f"{model.id} is an adapter of {base.id}, which is not the project's own; engines of "
            "that run on demand, or an operator keeps them running.",
            param="model",
        )


def _shown(serving: Serving, rows: Rows, view: View) -> pb.Serving:
    name = view.names.get(serving.version_id)
    version = name.engine_version_id if name else serving.engine_version_id
    engines = [one for one in rows.running if one.version_id == version]
    hindrances = [hindrance(name, one, view) for one in engines] if name else []
    ready = hindrances.count(None)
    message = ""
    wanted = serving.least(rows.now)
    if serving.scales:
        wanted = max(wanted, len(engines))
    if name is not None and name.refused and ready < wanted:
        message = f"engines of its base do not load it: {name.refused}"
    elif ready < wanted:
        unready = [one for one in hindrances if one is not None]
        error, waits_for = unready[0] if unready else (serving.error, "")
        message = error or waits_for or "waiting for a place for the engine"
    elif failed := [engine.error for engine in engines if engine.failed_at]:
        # The old ones go on meanwhile.
        message = f"a new engine could not be started: {failed[0]}"
    return pb.Serving(
        model=serving.model,
        min_replicas=serving.min_replicas,
        ready_replicas=ready,
        message=message,
        updated_at=int(serving.updated_at),
        engine=serving.engine,
        arguments=to_message(serving.arguments),
        gpus=serving.gpus,
        max_replicas=serving.max_replicas,
        target_requests=serving.target_requests,
        target_cache=serving.target_cache,
        replicas=wanted,
        schedule=window_messages(serving.schedule),
        idle_seconds=serving.idle_seconds,
        clusters=dict(serving.clusters),
    )
