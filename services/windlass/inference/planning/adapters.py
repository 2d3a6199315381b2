"""Adapters of the engines in a round: what is asked of their places, and what they have loaded."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping

from windlass.inference.copies import why_not_loaded
from windlass.inference.domain import Engine, View
from windlass.inference.planning.adapter_places import AdapterCopy, AdapterDemand, AdapterHost
from windlass.inference.planning.failed_loads import FailedLoads
from windlass.inference.planning.placing import placed
from windlass.inference.planning.round import Round


class AdapterStays:
    """Times since which engines have adapters, and requests wait for others, in Unix seconds.

    To a planner that is new, everything began now.
    """

    def __init__(self) -> None:
        self._copies: dict[tuple[str, str], AdapterCopy] = {}
        self._waits: dict[str, float] = {}
        self._before: dict[str, float] = {}
        self._failed = FailedLoads()

    def observe(self, now: float, engines: Iterable[Engine], view: View) -> None:
        """Begins a round: notes what engines have loaded, and forgets what they should not."""
        self._before, self._waits = self._waits, {}
        found = {}
        engines = list(engines)
        self._failed.forget(now, {one.id for one in engines})
        for engine in engines:
            errors = {one.version_id: bool(one.error) for one in view.status(engine).adapters}
            for version in engine.adapters:
                key = (engine.id, version)
                is_loaded, has_failed = errors.get(version) is False, errors.get(version, False)
                copy = self._copies.get(key)
                if copy is None or (copy.is_loaded, copy.has_failed) != (is_loaded, has_failed):
                    copy = AdapterCopy(now, is_loaded, has_failed)
                    if has_failed:
                        self._failed.add(now, *key)
                if is_loaded:
                    self._failed.remove(*key)
                found[key] = copy
        self._copies = found

    def copies(self, engine: Engine, now: float) -> dict[str, AdapterCopy]:
        """The adapters that an engine was told to load."""
        unseen = AdapterCopy(now)
        return {one: self._copies.get((engine.id, one), unseen) for one in engine.adapters}

    def paused(self, engine: Engine, now: float) -> Collection[str]:
        """The adapters that an engine could not load, and does not try again yet."""
        return self._failed.paused(engine.id, now)

    def waits_since(self, version: str, now: float) -> float:
        """Returns when requests began to wait for an adapter without a place; ask in each round."""
        self._waits[version] = self._before.get(version, now)
        return self._waits[version]


class AdapterPlacement:
    """The adapters that engines should load, as of one round."""

    def __init__(self, state: Round, loads: Mapping[str, int], stays: AdapterStays):
        """`loads` are the requests that all gateways have open or hold, by adapter."""
        self._state = state
        self._loads = loads
        self._stays = stays
        stays.observe(state.now, state.running.values(), state.view)
        self._engines: dict[str, list[Engine]] = defaultdict(list)
        for engine in state.running.values():
            self._engines[engine.version_id].append(engine)
        self._placed: dict[str, Mapping[str, tuple[str, ...]]] = {}

    def of(self, engine: Engine) -> tuple[str, ...]:
        """The adapters that an engine should load, the most needed first."""
        if engine.is_dedicated:
            return engine.adapters
        base = engine.version_id
        if engine.id not in self._placed.get(base, ()):
            present = [one for one in self._engines[base] if self._runs(one)]
            if all(one.id != engine.id for one in present):
                present.append(engine)
            self._engines[base] = present
            self._placed[base] = self._place(base, present)
        versions = dict.fromkeys(self._placed[base][engine.id])
        versions |= dict.fromkeys(one for one in engine.adapters if self._keeps(engine, one))
        return tuple(versions)[: self._state.policy.max_adapters]

    def asked_at(self, engine: Engine) -> float:
        """The time when a request asked last for an adapter for which it has to answer until one of
        the adapter's own engines does; 0 for none.
        """
        kept = (one for one in engine.adapters if self._keeps(engine, one))
        return max(map(self._state.asked_at, kept), default=0.0)

    def _runs(self, engine: Engine) -> bool:
        present = self._state.running.get((engine.version_id, engine.replica))
        return present is not None and present.id == engine.id

    def _place(self, base: str, engines: list[Engine]) -> Mapping[str, tuple[str, ...]]:
        demands = self._demands(base, engines)
        if not demands:
            return dict.fromkeys((one.id for one in engines), ())
        if all(self._has_all(one, demands) for one in engines):
            # So it is where adapters are few.
            return {one.id: one.adapters for one in engines}
        state, known = self._state, {one.id: one for one in engines}
        hosts = [
            AdapterHost(
                one.id,
                state.policy.max_adapters,
                self._stays.copies(one, state.now),
                is_ready=state.answers(one),
                paused=self._stays.paused(one, state.now),
            )
            for one in engines
        ]
        return placed(
            state.now,
            hosts,
            demands,
            lambda host, version: self._may_have(known[host], version),
            target=state.settings.target(base),
        )

    def _has_all(self, engine: Engine, demands: list[AdapterDemand]) -> bool:
        return (
            len(engine.adapters) <= self._state.policy.max_adapters
            and set(engine.adapters) == {one.version_id for one in demands}
            and all(self._may_have(engine, version) for version in engine.adapters)
        )

    def _demands(self, base: str, engines: list[Engine]) -> list[AdapterDemand]:
        state = self._state
        used: dict[str, float] = {}
        for want in state.wants[base]:
            version = want.version_id
            if version != base and version in state.names:
                used_at = 0.0 if want.serving is not None else want.used_at
                used[version] = max(used.get(version, 0.0), used_at)
        now = state.now
        ready = [one for one in engines if state.answers(one)] or engines
        there = {
            version
            for one in ready
            for version, copy in self._stays.copies(one, now).items()
            if not copy.has_failed
        }
        return [
            AdapterDemand(
                version,
                state.names[version].project_id,
                self._loads.get(version, 0),
                used_at,
                now if version in there else self._stays.waits_since(version, now),
            )
            for version, used_at in used.items()
        ]

    def _may_have(self, engine: Engine, version: str) -> bool:
        """Returns True if an engine may load an adapter; what an absent cluster has stays."""
        view, name = self._state.view, self._state.names[version]
        away = engine.cluster_id not in view.clusters
        is_permitted = away or view.permits(engine.cluster_id, name.project_id)
        return is_permitted and not why_not_loaded(engine, name)

    def _keeps(self, engine: Engine, version: str) -> bool:
        """Returns True for an adapter that engines of its own will answer for, and do not yet."""
        state = self._state
        name = state.names.get(version)
        if name is None or name.base_version_id != engine.version_id:
            return False
        if not state.wants.get(version):
            return False
        own = (one for one in state.running.values() if one.version_id == version)
        return not why_not_loaded(engine, name) and not any(map(state.answers, own))
