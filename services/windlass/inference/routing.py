"""Routes from engines and their statuses (pure), and those who follow them."""

import asyncio
import contextlib
from collections import defaultdict
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from types import MappingProxyType

from google.protobuf.message import Message

from windlass.api.clusters.v1 import clusters_pb2
from windlass.api.inference.v1 import inference_pb2 as pb
from windlass.core.db.paging import STREAM_PAGE_BYTES, stream_pages
from windlass.core.rpc.following import BEAT_SECONDS
from windlass.inference.copies import why_not_loaded
from windlass.inference.domain import Engine, Name, Rows, View
from windlass.inference.stacks.stack import REACHES

DELETED_IDS = 10_000
NO_LOADS: Mapping[str, pb.ReplicaLoad] = MappingProxyType({})
# By the reason that an agent gives for PHASE_STARTING.
_STARTS = {
    "Downloading": "copying the model to the engine's machine",
    "WaitingToStart": "waiting until other engines of the machine have started",
    "Waking": "waking the engine",
}
# Kueue's, before it admits a pod.
_QUEUED = frozenset({"Queued", "QuotaReserved", "ExceedsQuota"})
_ASLEEP = "sleeping until somebody asks"
_STACK = "waiting for the serving stack"
_NO_PLACE = "waiting for a place among the adapters of the engine"
_FOREIGN = (
    "The engine of its base model runs in a cluster that is not assigned to its project, or in "
    "another geography than the project's data."
)


def routes_of(rows: Rows, view: View, default: str) -> dict[str, pb.Route]:
    """The route of each version that is wanted or served; `default` is the kind of engine of those
    whose serving names none.
    """
    kinds = {one.version_id: one.engine for one in rows.servings if one.engine}
    engines = defaultdict[str, list[Engine]](list)
    for engine in rows.running:
        engines[engine.version_id].append(engine)
    errors = {want.version_id: want.error for want in rows.wants}
    found = {}
    for version_id in rows.version_ids:
        if (name := view.names.get(version_id)) is None:
            continue
        kind = kinds.get(name.settings_version_id, default)
        if name.stack:
            kind = rows.stacks[name.stack].kind if name.stack in rows.stacks else REACHES
        engine_version = name.engine_version_id
        route = pb.Route(version_id=version_id, engine=kind, engine_version_id=engine_version)
        if not (own := engines.get(engine_version)):
            route.error = errors.get(version_id, "")
            route.waits_for = "waiting for a place for the engine"
        else:
            _fill(route, name, own, view)
        if not route.endpoints:
            _keep_answering(route, name, engines.get(name.other_engine_version_id, ()), view)
        if name.refused and not route.endpoints:
            route.error = not_loaded(kind, name.refused)
        if route.error:
            # A route that failed stays as it is: a gateway takes a change for another failure.
            route.waits_for = ""
        found[version_id] = route
    return found


def _fill(route: pb.Route, name: Name, engines: Sequence[Engine], view: View) -> None:
    """Adds every engine that answers; where none does, says why of one that has not failed."""
    hindrances = []
    for engine in engines:
        if (found := hindrance(name, engine, view)) is None:
            status, cluster = view.status(engine), view.clusters[engine.cluster_id]
            route.endpoints.add(
                engine_id=engine.id,
                address=status.endpoint,
                capabilities=status.capabilities,
                direct=cluster.capacity.direct if cluster.capacity.HasField("direct") else None,
                geography=cluster.geography,
            )
        else:
            hindrances.append(found)
    if route.endpoints:
        _keep_one_kind(route, {engine.id: engine.engine for engine in engines})
    else:
        # Of engines that will answer, rather the one that loads it.
        route.error, route.waits_for = min(
            hindrances, key=lambda one: (bool(one[0]), one[1] == _NO_PLACE)
        )


def _keep_answering(route: pb.Route, name: Name, engines: Sequence[Engine], view: View) -> None:
    """Adds engines that answer as they did before a change of settings, until others do."""
    before = pb.Route(engine=route.engine)
    if engines:
        _fill(before, name, engines, view)
    if before.endpoints:
        route.endpoints.extend(before.endpoints)
        route.engine, route.engine_version_id = before.engine, name.other_engine_version_id
        route.error = route.waits_for = ""


def not_loaded(kind: str, why: str) -> str:
    """The sentence on an adapter that engines of a kind do not load."""
    return (
        f"Engines of the kind {kind!r} do not load the adapter: {why}. A job with `--export "
        "merged` makes complete weights beside its result, which then answer in its place."
    )


def _keep_one_kind(route: pb.Route, kinds: Mapping[str, str]) -> None:
    """Leaves the endpoints of one kind, since requests are checked by the kind that answers them.

    That is the kind that the model should have, unless another alone answers.
    """
    answering = [kinds[one.engine_id] for one in route.endpoints]
    if route.engine not in answering:
        route.engine = answering[0]
    kept = [one for one in route.endpoints if kinds[one.engine_id] == route.engine]
    del route.endpoints[:]
    route.endpoints.extend(kept)


def hindrance(name: Name, engine: Engine, view: View) -> tuple[str, str] | None:
    """Returns why an engine does not answer for a version: an error, and what it waits for.

    None where it answers.
    """
    waits_for = start_of(engine, view)
    if not view.answers(engine, name.project_id):
        is_there = engine.cluster_id in view.clusters
        if is_there and not view.permits(engine.cluster_id, name.project_id):
            return _FOREIGN, waits_for
        return engine.error if engine.failed_at else "", waits_for
    if engine.version_id != name.version_id or engine.is_dedicated:
        if why := why_not_loaded(engine, name):
            return not_loaded(engine.engine, why), waits_for
        status = view.status(engine)
        loaded = [one for one in status.adapters if one.version_id == name.version_id]
        if not loaded:
            return "", waits_for if name.version_id in engine.adapters else _NO_PLACE
        if loaded[0].error:
            return loaded[0].error, waits_for
    return None


def start_of(engine: Engine, view: View) -> str:
    """Returns what an engine's start waits for, in our words: an agent's may name other tenants."""
    if engine.cluster_id not in view.clusters:
        return "waiting for the engine's cluster, which is not connected"
    if view.clusters[engine.cluster_id].capacity.draining:
        return "waiting for the agent of the engine's cluster, which is about to stop"
    status = view.status(engine)
    if engine.is_adopted:
        return _STACK
    if status.phase == clusters_pb2.PHASE_SLEEPING:
        return _ASLEEP if engine.asleep else _STARTS["Waking"]
    if status.phase == clusters_pb2.PHASE_RUNNING:
        return "loading the adapter"
    if status.phase != clusters_pb2.PHASE_STARTING:
        if status.queue_position or status.reason in _QUEUED:
            return "waiting for quota in the engine's cluster"
        return "waiting for the cluster to start the engine"
    return _STARTS.get(status.reason, "starting the engine")


def loads_of(rows: Rows, view: View) -> dict[str, pb.ReplicaLoad]:
    """The load of each engine that says one, by its address."""
    found = {}
    for engine in rows.running:
        address, load = view.status(engine).endpoint, view.load(engine)
        one = pb.ReplicaLoad(address=address, engine_version_id=engine.version_id)
        if load.HasField("requests"):
            one.requests = load.requests
        if load.HasField("cache_percent"):
            one.cache_percent = load.cache_percent
        if address and (load.HasField("requests") or load.HasField("cache_percent")):
            found[address] = one
    return found


class Routes:
    """The current routes and loads; every follower gets a snapshot, then what differs."""

    def __init__(self) -> None:
        self._current: dict[str, pb.Route] = {}
        self._loads: dict[str, pb.ReplicaLoad] = {}
        self._known = asyncio.Event()
        self._followers: set[_Follower] = set()

    @property
    def are_known(self) -> bool:
        """True once they were published."""
        return self._known.is_set()

    def publish(
        self, routes: Mapping[str, pb.Route], loads: Mapping[str, pb.ReplicaLoad] = NO_LOADS
    ) -> None:
        """Replaces all routes and loads, and tells the followers what changed.

        Loads are apart from the routes, since one engine is in those of all its adapters.
        """
        changed = _changed(self._current, routes)
        reloaded = _changed(self._loads, loads)
        self._current, self._loads = dict(routes), dict(loads)
        self._known.set()
        for follower in self._followers:
            follower.tell(changed, reloaded)

    async def follow(self) -> AsyncIterator[pb.RoutesDelta]:
        """A snapshot as soon as the routes are known, then changes, coalesced while it is slow.

        Each in pages; an empty one as a beat.
        """
        await self._known.wait()
        follower = _Follower()
        self._followers.add(follower)
        try:
            sent = set(self._current)
            loads = tuple(self._loads.values())
            for delta in _pages(tuple(self._current.values()), (), loads, snapshot=True):
                yield delta
            while True:
                keys, addresses = await follower.changed()
                routes = [self._current[key] for key in keys if key in self._current]
                deleted = [key for key in keys if key in sent and key not in self._current]
                sent = sent.difference(deleted).union(route.version_id for route in routes)
                loads = tuple(
                    self._loads.get(one) or pb.ReplicaLoad(address=one) for one in addresses
                )
                for delta in _pages(routes, deleted, loads, snapshot=False):
                    yield delta
        finally:
            self._followers.discard(follower)


def _changed(old: Mapping[str, Message], new: Mapping[str, Message]) -> list[str]:
    return [key for key, one in new.items() if old.get(key) != one] + [
        key for key in old if key not in new
    ]


def _pages(
    routes: Iterable[pb.Route],
    deleted: Iterable[str],
    loads: Iterable[pb.ReplicaLoad],
    *,
    snapshot: bool,
) -> Iterable[pb.RoutesDelta]:
    # Ids are short and few beside routes: half a message holds those of 10,000 versions.
    gone = list(deleted)
    while len(gone) > DELETED_IDS:
        yield pb.RoutesDelta(deleted=gone[:DELETED_IDS], more=True)
        gone = gone[DELETED_IDS:]
    loaded = [page for page, _ in stream_pages(loads) if page]
    for number, (page, more) in enumerate(stream_pages(routes, STREAM_PAGE_BYTES // 2)):
        first = not number
        if loaded and not (snapshot or page or gone):
            # Nothing but loads has changed.
            continue
        yield pb.RoutesDelta(
            snapshot=snapshot and first,
            routes=page,
            deleted=gone if first else (),
            more=more or bool(loaded),
        )
    for number, some in enumerate(loaded, 1):
        yield pb.RoutesDelta(loads=some, more=number < len(loaded))


class _Follower:
    def __init__(self) -> None:
        self._keys: set[str] = set()
        self._addresses: set[str] = set()
        self._awake = asyncio.Event()

    def tell(self, keys: Iterable[str], addresses: Iterable[str]) -> None:
        self._keys.update(keys)
        self._addresses.update(addresses)
        if self._keys or self._addresses:
            self._awake.set()

    async def changed(self) -> tuple[set[str], set[str]]:
        """The names that changed and the addresses of changed loads, as soon as there are some.

        None after `BEAT_SECONDS`.
        """
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(BEAT_SECONDS):
                await self._awake.wait()
        self._awake.clear()
        found = self._keys, self._addresses
        self._keys, self._addresses = set(), set()
        return found
