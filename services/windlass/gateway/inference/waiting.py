"""Resolution of a model's name to engines that have it loaded, starting one if needed."""

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import NamedTuple, Protocol

import grpc

from windlass.api.models.v1 import models_pb2 as pb
from windlass.core import telemetry
from windlass.core.errors import from_rpc
from windlass.core.rpc.auth import Principal
from windlass.core.rpc.model_scope import unknown_model
from windlass.gateway.errors import HttpError
from windlass.gateway.inference.names import NameCache, Named
from windlass.gateway.inference.routes import (
    EngineEndpoint,
    OpenRequests,
    RouteTable,
    VersionRoute,
)
from windlass.inference_api import routes as paths
from windlass.inference_api.errors import wrong_task
from windlass.modelfiles.naming import MODEL_NAME_LENGTH

log = telemetry.logger("gateway.inference")
# Requests that wait for engines at once; each holds its body in memory.
WAITERS = 1000
# How long an error that was there before our asking is given to go away.
OLD_ERROR_SECONDS = 5.0
# An engine that did not answer may be back under the same address.
RETRY_SECONDS = 1.0
# Between two questions of one that waits for a name that nothing is known of any more.
LOOK_UP_SECONDS = 1.0
# Of models, in words.
_TASKS: dict[int, str] = {
    pb.MODEL_TASK_GENERATION: "generate",
    pb.MODEL_TASK_SCORING: "score",
    pb.MODEL_TASK_EMBEDDING: "embed",
}
# A route that is not here is for whatever model has engines with it.
_TASKS_OF: dict[str, set[int]] = {
    paths.CHAT: {pb.MODEL_TASK_GENERATION},
    paths.COMPLETIONS: {pb.MODEL_TASK_GENERATION},
    paths.EMBEDDINGS: {pb.MODEL_TASK_GENERATION, pb.MODEL_TASK_EMBEDDING},
    paths.SCORE: {pb.MODEL_TASK_SCORING},
}


class Judge(Protocol):
    """A check of a request for the engines that would answer it."""

    def __call__(self, kind: str, *, runs: bool) -> None:
        """Raises HttpError for what engines of the kind must not get; one runs, or must start."""


class Served(NamedTuple):
    """Engines that have a model loaded, and its version with that of the engines."""

    version_id: str
    engine_version_id: str
    endpoints: tuple[EngineEndpoint, ...]
    # Where the data of the project that asks stays; empty: anywhere.
    geography: str = ""


class ModelFinder:
    """Resolves names for the token path."""

    def __init__(
        self,
        routes: RouteTable,
        names: NameCache,
        load: OpenRequests,
        *,
        hold_seconds: float,
        engine: str,
    ):
        self._routes = routes
        self._names = names
        self._load = load
        self.hold_seconds = hold_seconds
        # The kind that starts where no route says another.
        self._engine = engine
        self._waiting = 0

    async def find(
        self,
        caller: Principal,
        model: str,
        *,
        path: str,
        judge: Judge,
        seconds: float | None = None,
        is_open: bool = False,
    ) -> Served:
        """The engines that have the model loaded, of a task that the path is for.

        Waits for one to start, if `judge` has nothing against the request, by default as long
        as requests are held. Raises HttpError 404 for an unknown name, 400 for a model that
        does something else, 503 when none is ready in time, and what `judge` raises. One that
        `is_open` counts as load already.
        """
        if caller.models is not None and not caller.models.admits(model):
            raise _unknown(model)
        project_id = caller.project_id
        named = self._names.find(project_id, model) or await self._look_up(caller, model)
        _require_task(model, named.task, path)
        route = self._routes.find(named.version_id, named.geography)
        if route is not None and route.endpoints:
            judge(self._kind(named, route), runs=True)
            self._routes.touch(project_id, model)
            return _served(named, route)
        if not named.is_adopted or (route is not None and route.engine):
            judge(self._kind(named, route), runs=False)
        with self._counted():
            try:
                async with asyncio.timeout(self.hold_seconds if seconds is None else seconds):
                    named, route = await self._held(caller, model, named, is_open=is_open)
            except TimeoutError:
                raise _not_ready(self._still_loading(caller, model)) from None
        _require_task(model, named.task, path)
        # It may have become another kind meanwhile.
        judge(self._kind(named, route), runs=True)
        return _served(named, route)

    def _kind(self, named: Named, route: VersionRoute | None) -> str:
        """The kind of engine that answers for a version, or would."""
        if route is None or not route.engine:
            route = self._routes.find(named.engine_version_id)
        return route.engine or self._engine if route is not None else self._engine

    async def change(
        self, caller: Principal, model: str, gone: tuple[EngineEndpoint, ...], *, seconds: float
    ) -> None:
        """Waits, at most a while, until a model is served by other engines than the lost."""
        with self._counted():
            deadline = time.monotonic() + min(seconds, RETRY_SECONDS)
            while (left := deadline - time.monotonic()) > 0:
                named = self._names.find(caller.project_id, model)
                route = (
                    self._routes.find(named.version_id, named.geography)
                    if named is not None
                    else None
                )
                if route is None or route.endpoints != gone:
                    return
                await self._change(left)

    def endpoints(self, version_id: str, geography: str = "") -> tuple[EngineEndpoint, ...]:
        """The engines that have a version loaded at this moment, for projects of a geography."""
        route = self._routes.find(version_id, geography)
        return route.endpoints if route is not None else ()

    def waits_for(self, caller: Principal, model: str) -> str:
        """Returns what the start of the model's engine waits for, in general words if unknown."""
        return self._waits_for(caller, model) or "the model is loading"

    def _waits_for(self, caller: Principal, model: str) -> str:
        named = self._names.find(caller.project_id, model)
        route = self._routes.find(named.version_id, named.geography) if named is not None else None
        return route.waits_for if route is not None else ""

    def _still_loading(self, caller: Principal, model: str) -> str:
        step = self._waits_for(caller, model)
        return f"The model {model!r} is still loading" + (f": {step}." if step else ".")

    @contextmanager
    def _counted(self) -> Iterator[None]:
        if self._waiting >= WAITERS:
            raise _not_ready("Too many requests are waiting for models to load; try again.")
        self._waiting += 1
        try:
            yield
        finally:
            self._waiting -= 1

    def under_way(self, caller: Principal, model: str, served: Served) -> "_UnderWay":
        """Counts a request for the model that engines answer, for the length of the block."""
        return _UnderWay(self._routes, self._load, caller.project_id, model, served)

    async def _held(
        self, caller: Principal, model: str, named: Named, *, is_open: bool
    ) -> tuple[Named, VersionRoute]:
        """Waits for the version of a name, and for the next one where it gets another."""
        while True:
            _, engines, *_ = _served(named, self._routes.find(named.version_id, named.geography))
            load = self._load.counted(engines, named.version_id)
            with nullcontext() if is_open else load:
                found, route = await self._wait(caller, model, named)
            if route is not None:
                return found, route
            named = found

    async def _wait(
        self, caller: Principal, model: str, named: Named
    ) -> tuple[Named, VersionRoute | None]:
        """Waits for a version; returns no route if the name has got another one meanwhile."""
        project_id = caller.project_id
        first = self._routes.find(named.version_id, named.geography)
        old_error_until = time.monotonic() + OLD_ERROR_SECONDS
        look_up_at = 0.0
        await self._routes.want(project_id, model)
        while True:
            want_again = time.monotonic() + self._routes.touch_seconds
            while (left := want_again - time.monotonic()) > 0:
                route = self._routes.find(named.version_id, named.geography)
                if route is not None and route.endpoints:
                    return named, route
                if route is not None and route.error:
                    if route is not first or time.monotonic() > old_error_until:
                        raise _not_ready(f"The model could not be started: {route.error}")
                    left = min(left, 1.0)
                await self._change(left)
                newest = self._names.find(project_id, model)
                if newest is None and time.monotonic() >= look_up_at:
                    newest = await self._look_up_still(caller, model, named)
                    look_up_at = time.monotonic() + LOOK_UP_SECONDS
                if newest is not None and newest.version_id != named.version_id:
                    return newest, None
            await self._want_still(project_id, model)

    async def _look_up_still(self, caller: Principal, model: str, named: Named) -> Named:
        """Looks a name up again, and keeps what was known if nobody says; raises HttpError 404."""
        try:
            return await self._look_up(caller, model)
        except grpc.aio.AioRpcError as error:
            if error.code() is not grpc.StatusCode.UNAVAILABLE:
                raise
            log.warning("model_look_up_failed", model=model, code=error.code().name)
            return named

    async def _want_still(self, project_id: str, model: str) -> None:
        """Says once more that a model is wanted, where somebody hears it."""
        try:
            await self._routes.want(project_id, model)
        except grpc.aio.AioRpcError as error:
            # A restart of the service must not end a wait that it outlasts.
            if error.code() is not grpc.StatusCode.UNAVAILABLE:
                raise
            log.warning("model_want_failed", model=model, code=error.code().name)

    async def _change(self, seconds: float) -> None:
        deadline = asyncio.timeout(seconds)
        try:
            async with deadline:
                await self._routes.change()
        except TimeoutError:
            # An outer deadline that passes meanwhile is not ours to swallow.
            if not deadline.expired():
                raise

    async def _look_up(self, caller: Principal, model: str) -> Named:
        """The name as the models service knows it; raises HttpError 404."""
        if len(model) > MODEL_NAME_LENGTH or not model.isprintable():
            raise _unknown(model)
        try:
            # A caller who may not list models, or not all, is told of none.
            suggest = caller.models is None and caller.may("models.read")
            return await self._names.look_up(caller.project_id, model, suggest=suggest)
        except grpc.aio.AioRpcError as error:
            if error.code() is grpc.StatusCode.NOT_FOUND:
                raise _unknown(model, from_rpc(error).message) from None
            if error.code() is grpc.StatusCode.INVALID_ARGUMENT:
                raise _unknown(model) from None
            raise


class _UnderWay(NamedTuple):
    """A class, since a generator would take a hundredth of a chat."""

    routes: RouteTable
    load: OpenRequests
    project_id: str
    model: str
    served: Served

    def __enter__(self) -> None:
        self.routes.begin(self.project_id, self.model)
        self.load.begin(self.served.engine_version_id, self.served.version_id)

    def __exit__(self, *_: object) -> None:
        self.load.end(self.served.engine_version_id, self.served.version_id)
        self.routes.end(self.project_id, self.model)


def _require_task(model: str, task: int, path: str) -> None:
    """Raises HttpError 400 for a model whose task is not what the route is for."""
    if path in _TASKS_OF and task in _TASKS and task not in _TASKS_OF[path]:
        refused = wrong_task(model, _TASKS[task])
        raise HttpError(refused.status, refused.message, code=refused.code, param=refused.param)


def _unknown(model: str, message: str = "") -> HttpError:
    message = message or unknown_model(model).message
    return HttpError(404, message, code="model_not_found", param="model")


def _served(named: Named, route: VersionRoute | None) -> Served:
    """Returns the engines of a route; a name alone says which ones its version usually has."""
    if route is None:
        version = "" if named.is_merged else named.engine_version_id
        return Served(named.version_id, version, (), named.geography)
    version = route.engine_version_id or named.engine_version_id
    return Served(named.version_id, version, route.endpoints, named.geography)


def _not_ready(message: str) -> HttpError:
    return HttpError(
        503,
        message,
        kind="service_unavailable_error",
        code="model_not_ready",
        param="model",
        headers={"retry-after": "5"},
    )
