"""Routes from versions to engines, kept current by a watch; and the requests on them."""

import asyncio
import time
from collections import Counter, OrderedDict
from collections.abc import AsyncIterable, Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import NamedTuple

import grpc

from windlass.api.clusters.v1.clusters_pb2 import DirectEndpoint
from windlass.api.inference.v1 import inference_pb2 as pb
from windlass.api.inference.v1 import inference_pb2_grpc as rpc
from windlass.core import telemetry
from windlass.core.ids import new_id
from windlass.core.rpc.following import Follower
from windlass.residency.rule import admits

log = telemetry.logger("gateway.routes")
# How often an engine in use is wanted again, so that it is not stopped as idle.
TOUCH_SECONDS = 10.0
TOUCHED = 10_000
TOUCH_QUEUE = 1000

# A change is told so soon, and a load that stays as it is this often: it would count no more.
CHANGE_SECONDS = 0.5
REPEAT_SECONDS = 3.0
CALL_SECONDS = 5.0
TOLD_ADAPTERS = 1000
UNKNOWN_SECONDS = 60.0


Key = tuple[str, str]


class DirectAddress(NamedTuple):
    """A door to a machine's engines, and the SHA-256 of the certificate that it shows."""

    address: str
    digest: bytes


@dataclass(frozen=True, slots=True)
class EngineEndpoint:
    """One engine that has the model loaded."""

    engine_id: str
    address: str
    # What it has beside chat and completions.
    routes: frozenset[str]
    embeddings: bool = False
    # It keeps the cached prompts of different salts apart.
    cache_salt: bool = False
    # It reads the images of chats.
    vision: bool = False
    # The one task that it was started for; empty for one that generates.
    task: str = ""
    # Requests that a gateway has open there at once; 0 for any number.
    places: int = 0
    # A way that is tried before that of its address.
    direct: DirectAddress | None = None
    # Where its cluster is; empty: nobody says.
    geography: str = ""

    def has_room(self, active: int) -> bool:
        """Returns True if one more than so many requests may be open."""
        return not self.places or active < self.places


@dataclass(frozen=True, slots=True)
class VersionRoute:
    """Endpoints of a version, or the error when it has none, or what their start waits for."""

    endpoints: tuple[EngineEndpoint, ...]
    error: str
    waits_for: str
    # The kind of engine that answers, or would; empty if the inference service does not say.
    engine: str
    # The version of the engines that answer; likewise.
    engine_version_id: str


class RouteTable:
    """The routes of all models that are wanted or served."""

    def __init__(
        self, inference: rpc.InferenceInternalServiceAsyncStub, *, idle_seconds: float = 3600.0
    ):
        """`idle_seconds` is how long an engine may be unused before it ends."""
        self._inference = inference
        # Between two words on a model that is in use or waited for.
        self.touch_seconds = min(TOUCH_SECONDS, max(1.0, idle_seconds / 3))
        self._routes: dict[str, VersionRoute] = {}
        self._loads: dict[str, pb.ReplicaLoad] = {}
        # None since they changed.
        self._addresses: frozenset[str] | None = None
        self._changed = asyncio.Event()
        self._touched: OrderedDict[Key, float] = OrderedDict()
        self._to_touch: asyncio.Queue[Key] = asyncio.Queue(TOUCH_QUEUE)
        # Requests under way, so that an engine with a long answer is not taken for idle.
        # By version and geography, of the present routes.
        self._within: dict[Key, VersionRoute] = {}
        self._under_way: Counter[Key] = Counter()
        self.follower = Follower("routes", self._open, self._apply)

    def find(self, version_id: str, geography: str = "") -> VersionRoute | None:
        """The version's route, for requests of projects of a geography; None if nobody wants it.

        Engines for everyone may answer in several geographies.
        """
        route = self._routes.get(version_id)
        if not geography or route is None:
            return route
        key = (version_id, geography)
        if key not in self._within:
            self._within[key] = _within(route, geography)
        return self._within[key]

    def loads(self) -> Mapping[str, pb.ReplicaLoad]:
        """The load of each engine that says it, by address."""
        return self._loads

    def addresses(self) -> frozenset[str]:
        """The addresses of all engines that some route leads to."""
        if self._addresses is None:
            routes = self._routes.values()
            self._addresses = frozenset(one.address for route in routes for one in route.endpoints)
        return self._addresses

    def touch(self, project_id: str, model: str) -> None:
        """Notes that the model is in use; never waits."""
        key = (project_id, model)
        now = time.monotonic()
        if now - self._touched.get(key, -self.touch_seconds) < self.touch_seconds:
            return
        self._touched[key] = now
        if len(self._touched) > TOUCHED:
            self._touched.popitem(last=False)
        if not self._to_touch.full():
            self._to_touch.put_nowait(key)

    def begin(self, project_id: str, model: str) -> None:
        """Notes a request under way; the model counts as in use until its `end`."""
        self._under_way[(project_id, model)] += 1

    def end(self, project_id: str, model: str) -> None:
        """Notes the end of a request."""
        key = (project_id, model)
        self._under_way[key] -= 1
        if not self._under_way[key]:
            del self._under_way[key]

    async def want(self, project_id: str, model: str) -> None:
        """Requests that the model be served; a route appears once it is."""
        await self._inference.WantModel(pb.WantModelRequest(project_id=project_id, model=model))

    async def change(self) -> None:
        """Waits for the next change of any route."""
        await self._changed.wait()

    async def keep_warm(self) -> None:
        """Reports models in use, open requests included, until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._touch_open_requests())
            while True:
                project_id, model = await self._to_touch.get()
                try:
                    await self.want(project_id, model)
                except grpc.aio.AioRpcError as error:
                    log.warning("model_touch_failed", model=model, code=error.code().name)

    async def _touch_open_requests(self) -> None:
        while True:
            await asyncio.sleep(self.touch_seconds)
            for key in tuple(self._under_way):
                self.touch(*key)

    def _open(self) -> AsyncIterable[pb.RoutesDelta]:
        return self._inference.WatchRoutes(pb.WatchRoutesRequest(), wait_for_ready=True)

    def _apply(self, delta: pb.RoutesDelta) -> None:
        if delta.snapshot:
            self._routes, self._loads = {}, {}
        for load in delta.loads:
            if load.HasField("requests") or load.HasField("cache_percent"):
                self._loads[load.address] = load
            else:
                self._loads.pop(load.address, None)
        if not (delta.snapshot or delta.routes or delta.deleted):
            return
        for version_id in delta.deleted:
            self._routes.pop(version_id, None)
        for route in delta.routes:
            self._routes[route.version_id] = VersionRoute(
                tuple(_endpoints(route.endpoints)),
                route.error,
                route.waits_for,
                route.engine,
                route.engine_version_id,
            )
        self._addresses = None
        self._within.clear()
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()


def _within(route: VersionRoute, geography: str) -> VersionRoute:
    """The route to those engines alone that requests of a geography may reach."""
    able = tuple(one for one in route.endpoints if admits(one.geography, geography))
    if able or not route.endpoints:
        return replace(route, endpoints=able)
    error = f"the project's data stays in {geography}, and no engine of the model runs there."
    return replace(route, endpoints=(), error=error, waits_for="")


def _endpoints(messages: Iterable[pb.Endpoint]) -> Iterable[EngineEndpoint]:
    for message in messages:
        able = message.capabilities
        yield EngineEndpoint(
            message.engine_id,
            message.address,
            frozenset(able.routes),
            embeddings=able.embeddings,
            cache_salt=able.cache_salt,
            vision=able.vision,
            task=able.task,
            places=_places(able.max_concurrency),
            direct=_direct(message.direct) if message.HasField("direct") else None,
            geography=message.geography,
        )


def _direct(message: DirectEndpoint) -> DirectAddress:
    return DirectAddress(message.address, message.certificate_digest)


def _places(concurrency: int) -> int:
    """The requests that an engine answers at once, and a few that are there when one ends."""
    return concurrency + concurrency // 8 + 1 if concurrency > 0 else 0


class OpenRequests:
    """Open and held requests by the version of the engines that answer, and of the adapter."""

    def __init__(
        self,
        inference: rpc.InferenceInternalServiceAsyncStub,
        lines: Callable[[], Mapping[str, tuple[int, float, int]]] = dict,
    ):
        """`lines` tells how many of them wait for busy engines, the longest wait in seconds, and
        how many wait beside these that let others go first.
        """
        self._lines = lines
        self._inference = inference
        self._reporter = new_id("gw-")
        self._open = Counter[str]()
        self._adapters = Counter[str]()
        self._changed = asyncio.Event()

    @contextmanager
    def counted(self, engine_version_id: str, version_id: str = "") -> Iterator[None]:
        """Counts a request for the length of the block; see `begin`."""
        self.begin(engine_version_id, version_id)
        try:
            yield
        finally:
            self.end(engine_version_id, version_id)

    def begin(self, engine_version_id: str, version_id: str = "") -> None:
        """Counts a request until its `end`; of an unknown version, not at all.

        `version_id` is that of the model, an adapter's if the engines run another version.
        """
        self._count(self._open, engine_version_id, 1)
        if version_id != engine_version_id:
            self._count(self._adapters, version_id, 1)

    def end(self, engine_version_id: str, version_id: str = "") -> None:
        """Ends what `begin` has counted."""
        self._count(self._open, engine_version_id, -1)
        if version_id != engine_version_id:
            self._count(self._adapters, version_id, -1)

    def _count(self, counter: Counter[str], version: str, number: int) -> None:
        if version:
            counter[version] += number
            if not counter[version]:
                del counter[version]
            self._changed.set()

    async def report(self) -> None:
        """Tells the numbers until cancelled: when they change, and again while there are any."""
        while True:
            with suppress(TimeoutError):
                is_open = self._open or self._adapters
                async with asyncio.timeout(REPEAT_SECONDS if is_open else None):
                    await self._changed.wait()
            self._changed.clear()
            request = pb.ReportLoadRequest(
                reporter=self._reporter,
                open_requests=self._open,
                adapter_requests=dict(self._adapters.most_common(TOLD_ADAPTERS)),
            )
            for version, (number, seconds, background) in self._lines().items():
                line = request.lines[version]
                line.requests, line.seconds, line.background = number, seconds, background
            pause = CHANGE_SECONDS
            try:
                await self._inference.ReportLoad(request, timeout=CALL_SECONDS)
            except grpc.aio.AioRpcError as error:
                log.warning("load_not_reported", code=error.code().name)
                # A server of the release before scales nothing.
                if error.code() is grpc.StatusCode.UNIMPLEMENTED:
                    pause = UNKNOWN_SECONDS
            await asyncio.sleep(pause)
