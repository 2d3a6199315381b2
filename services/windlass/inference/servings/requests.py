"""Requests that set, show and end how models are served."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

from windlass.api.inference.v1 import inference_pb2 as pb
from windlass.api.models.v1 import models_pb2
from windlass.api.models.v1.models_pb2_grpc import ModelsInternalServiceAsyncStub
from windlass.core.db.paging import page_of
from windlass.core.db.wake import Wake
from windlass.core.errors import InvalidArgument, NotFound
from windlass.core.quotas import Quota, exceeded
from windlass.core.rpc.auth import Principal, current
from windlass.engine_arguments import EngineArguments, chosen, to_message
from windlass.inference.domain import (
    InferencePolicy,
    Name,
    Rows,
    Serving,
    View,
    engine_bound,
    kept_engines,
)
from windlass.inference.followed_runs import FollowedRuns
from windlass.inference.observed_state import ObservedState
from windlass.inference.routing import hindrance
from windlass.inference.servings.checks import (
    arguments_of,
    complete,
    require_adapter,
    require_base,
    require_bounds,
    require_experts,
    require_follower,
    require_group,
    require_guesser,
    require_needs,
    require_own,
    require_own_engines,
    require_plain,
    require_readable,
    require_sleep,
    schedule_of,
)
from windlass.inference.servings.drafts import Drafts
from windlass.inference.servings.store import ServingStore
from windlass.inference.servings.training import require_trainable
from windlass.inference.store import InferenceStore
from windlass.serving_schedules import (
    window_messages,
)


class ServingRequests:
    """The part of InferenceService that is about servings."""

    def __init__(
        self,
        store: InferenceStore,
        servings: ServingStore,
        observed: ObservedState,
        models: ModelsInternalServiceAsyncStub,
        drafts: Drafts,
        followed: FollowedRuns,
        wake: Wake,
        policy: InferencePolicy,
    ):
        self._store = store
        self._servings = servings
        self._observed = observed
        self._models = models
        self._drafts = drafts
        self._followed = followed
        self._wake = wake
        self._policy = policy

    async def put(self, request: pb.PutServingRequest) -> pb.Serving:
        """Sets how a model is served; raises InvalidArgument, and `quota_exceeded` for too much."""
        principal = current()
        require_bounds(request)
        engine = request.engine or self._policy.engine
        arguments = arguments_of(request, engine)
        require_group(request, engine, arguments)
        require_guesser(request, arguments)
        resolved = await self._resolve(principal, request.model)
        model, base = resolved.model, resolved.base.model
        require_own(principal, model.project_id)
        require_own_engines(model)
        if not base.id:
            require_readable(model, engine)
            require_experts(model, arguments)
        draft = "" if base.id else await self._drafts.version_of(resolved, arguments, engine)
        rows = await self._store.rows()
        complete(request, _serving_of(model, rows))
        require_needs(request)
        if request.training:
            # A cluster may have come since the last poll.
            await self._observed.refresh_clusters()
        view = await self._observed.known_view(rows)
        require_adapter(request, model, base)
        if request.follow:
            require_follower(request, model, base)
            organization = model.organization_id
            await self._followed.require(organization, model.project_id, request.follow)
        require_sleep(request, self._policy, view.clusters.values())
        require_trainable(request, engine, resolved, view.clusters.values())
        serving = _described(request, resolved, arguments, draft)
        names = await self._names_with(serving, rows)
        name = names.get(serving.version_id)
        if base.id:
            require_plain(request, model, base, is_copy=name is not None and name.is_copy)
        has_own = name is not None and bool(name.base_version_id)
        if base.id and base.project_id != model.project_id and not has_own:
            require_base(principal, model, base)
        await self._servings.put(serving, partial(self._require_room, names))
        self._wake.touch("inference")
        rows = await self._store.rows()
        return self._shown(_set_for(model, rows), rows, await self._observed.known_view(rows))

    async def get(self, request: pb.GetServingRequest) -> pb.Serving:
        """Returns how a model is served; raises NotFound where it is on demand alone."""
        serving, rows = await self._found(current(), request.model)
        return self._shown(serving, rows, await self._observed.known_view(rows))

    async def list(self, request: pb.ListServingsRequest) -> pb.ListServingsResponse:
        """The servings of the project's models and of those for everyone, by name."""
        rows = await self._store.rows()
        view = await self._observed.known_view(rows)
        caller = current()
        visible = rows.visible(caller.require_project()).values()
        seen = [one for one in visible if caller.may_use(one.model)]
        seen.sort(key=lambda one: one.model)
        seen, more = page_of(seen, lambda one: one.model, after=request.after, limit=request.limit)
        return pb.ListServingsResponse(
            servings=[self._shown(serving, rows, view) for serving in seen], has_more=more
        )

    async def delete(self, request: pb.DeleteServingRequest) -> pb.DeleteServingResponse:
        """Ends what nobody asks for of a model; raises NotFound where it is on demand alone."""
        principal = current()
        serving, _ = await self._found(principal, request.model)
        require_own(principal, serving.project_id)
        await self._servings.delete(serving)
        self._wake.touch("inference")
        return pb.DeleteServingResponse()

    def _shown(self, serving: Serving, rows: Rows, view: View) -> pb.Serving:
        return _shown(serving, rows, view, self._policy.engine)

    async def _resolve(self, principal: Principal, model: str) -> models_pb2.ResolvedModel:
        principal.require_model(model)
        return await self._models.ResolveModel(
            models_pb2.ResolveModelRequest(project_id=principal.require_project(), id=model)
        )

    async def _found(self, principal: Principal, name: str) -> tuple[Serving, Rows]:
        """The serving of a model as its name is resolved, and every row."""
        model = (await self._resolve(principal, name)).model
        rows = await self._store.rows()
        return _set_for(model, rows), rows

    async def _names_with(self, serving: Serving, rows: Rows) -> Mapping[str, Name]:
        """The names as they are once a serving is set: it may say what adapters are copies."""
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


def _described(
    request: pb.PutServingRequest,
    resolved: models_pb2.ResolvedModel,
    arguments: EngineArguments,
    draft_version_id: str,
) -> Serving:
    model = resolved.model
    return Serving(
        project_id=model.project_id,
        model=model.id,
        organization_id=model.organization_id,
        version_id=model.version_id,
        engine_version_id=resolved.base.model.version_id or model.version_id,
        min_replicas=request.min_replicas,
        updated_at=0.0,
        engine=request.engine,
        arguments=arguments,
        gpus=request.gpus,
        nodes=request.nodes,
        accelerator=request.accelerator,
        memory_bytes=request.memory_bytes,
        priority=request.priority,
        draft_version_id=draft_version_id,
        max_replicas=request.max_replicas,
        target_requests=request.target_requests,
        target_cache=request.target_cache,
        target_gpu=request.target_gpu,
        target_wait_seconds=request.target_wait_seconds,
        schedule=schedule_of(request),
        idle_seconds=request.idle_seconds,
        sleep_seconds=request.sleep_seconds,
        dedicated=request.dedicated,
        training=request.training,
        follow=request.follow,
        clusters=tuple(request.clusters.items()),
    )


def _serving_of(model: models_pb2.Model, rows: Rows) -> Serving | None:
    key = (model.project_id, model.id)
    return next((one for one in rows.servings if (one.project_id, one.model) == key), None)


def _set_for(model: models_pb2.Model, rows: Rows) -> Serving:
    if (serving := _serving_of(model, rows)) is not None:
        return serving
    raise NotFound(
        f"No engine of {model.id!r} is set to run; a request starts one.",
        reason="serving_not_found",
        param="model",
    )


def _shown(serving: Serving, rows: Rows, view: View, engine: str) -> pb.Serving:
    """The serving as it is; `engine` is the installation's kind."""
    name = view.names.get(serving.version_id)
    # Engines of its base answer for an adapter, by what is set for that.
    own = None if name is None or name.is_adapter else name
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
        nodes=serving.nodes,
        accelerator=serving.accelerator,
        memory_bytes=serving.memory_bytes,
        priority=serving.priority,
        max_replicas=serving.max_replicas,
        target_requests=serving.target_requests,
        target_cache=serving.target_cache,
        target_gpu=serving.target_gpu,
        target_wait_seconds=serving.target_wait_seconds,
        replicas=wanted,
        schedule=window_messages(serving.schedule),
        idle_seconds=serving.idle_seconds,
        sleep_seconds=serving.sleep_seconds,
        clusters=dict(serving.clusters),
        dedicated=serving.dedicated,
        training=serving.training,
        follow=serving.follow,
        preset=own.preset if own else "",
        derived_arguments=to_message(_derived(own, serving, engine)) if own else None,
    )


def _derived(name: Name, serving: Serving, engine: str) -> EngineArguments:
    """The arguments of its engines that it does not set."""
    found = chosen(name.derived(serving.engine or engine))
    return EngineArguments(
        **{key: value for key, value in found.items() if key not in chosen(serving.arguments)}
    )
