"""Routes from engines and their statuses (pure), and those who follow them."""

import asyncio
from collections.abc import AsyncIterator, Mapping

from windlass.api.inference.v1 import inference_pb2 as pb
from windlass.inference.domain import RUNNING, Engine, Name, Rows, View

Key = tuple[str, str]


def routes_of(rows: Rows, view: View) -> dict[Key, pb.Route]:
    """The route of every name."""
    engines = {engine.version_id: engine for engine in rows.engines if engine.desired == RUNNING}
    errors = {want.version_id: want.error for want in rows.wants}
    found = {}
    for key, name in view.names.items():
        route = pb.Route(
            model=name.model,
            project_id=name.project_id,
            version_id=name.version_id,
            scores=name.scores,
        )
        engine = engines.get(name.engine_version_id)
        if engine is None:
            route.error = errors.get(name.version_id, "")
        else:
            _fill(route, name, engine, view)
        found[key] = route
    return found


def _fill(route: pb.Route, name: Name, engine: Engine, view: View) -> None:
    route.error = engine.error if engine.failed_at else ""
    if not view.answers(engine):
        return
    status = view.status(engine)
    if name.is_adapter:
        loaded = [one for one in status.adapters if one.version_id == name.version_id]
        if not loaded or loaded[0].error:
            route.error = loaded[0].error if loaded else route.error
            return
    route.error = ""
    route.endpoints.add(
        engine_id=engine.id, address=status.endpoint, capabilities=status.capabilities
    )


class Routes:
    """The current routes; every follower gets a snapshot, then what differs."""

    def __init__(self) -> None:
        self._current: dict[Key, pb.Route] = {}
        self._known = asyncio.Event()
        self._followers: set[_Follower] = set()

    def publish(self, routes: Mapping[Key, pb.Route]) -> None:
        """Replaces all routes and tells the followers what changed."""
        old, self._current = self._current, dict(routes)
        changed = [key for key, route in self._current.items() if old.get(key) != route]
        changed += [key for key in old if key not in self._current]
        self._known.set()
        for follower in self._followers:
            follower.tell(changed)

    async def follow(self) -> AsyncIterator[pb.RoutesDelta]:
        """A snapshot as soon as the routes are known, then changes, coalesced while it is slow."""
        await self._known.wait()
        follower = _Follower()
        self._followers.add(follower)
        try:
            sent = dict(self._current)
            yield pb.RoutesDelta(snapshot=True, routes=sent.values())
            while True:
                delta = pb.RoutesDelta()
                for key in await follower.changed():
                    if (route := self._current.get(key)) is not None:
                        delta.routes.append(route)
                        sent[key] = route
                    elif (gone := sent.pop(key, None)) is not None:
                        delta.deleted.append(gone)
                yield delta
        finally:
            self._followers.discard(follower)


class _Follower:
    def __init__(self) -> None:
        self._keys: set[Key] = set()
        self._awake = asyncio.Event()

    def tell(self, keys: list[Key]) -> None:
        if keys:
            self._keys.update(keys)
            self._awake.set()

    async def changed(self) -> set[Key]:
        await self._awake.wait()
        self._awake.clear()
        keys, self._keys = self._keys, set()
        return keys
