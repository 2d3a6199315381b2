"""What to change so that the wanted models are served within the bounds; pure."""

from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from windlass.api.clusters.v1 import clusters_pb2
from windlass.inference.domain import (
    AWAITED_SECONDS,
    DELETED,
    EVICTABLE_SECONDS,
    PATIENCE_SECONDS,
    RETRY_SECONDS,
    RETRY_SECONDS_MOST,
    RUNNING,
    UNKNOWN_SECONDS,
    Engine,
    Name,
    Policy,
    Rows,
    View,
    Want,
)

ENDED = frozenset(
    {clusters_pb2.PHASE_FAILED, clusters_pb2.PHASE_STOPPED, clusters_pb2.PHASE_SUCCEEDED}
)


@dataclass
class Plan:
    """Changes of rows: each update names the engine as it was and as it shall be."""

    updates: list[tuple[Engine, Engine]] = field(default_factory=list)
    creates: list[Engine] = field(default_factory=list)
    dropped: list[Want] = field(default_factory=list)
    errors: list[tuple[Want, str]] = field(default_factory=list)


class Planner:
    """One round of planning over one set of rows and one view."""

    def __init__(self, rows: Rows, view: View, policy: Policy, new_id: Callable[[], str]):
        self._now = rows.now
        self._view = view
        self._policy = policy
        self._new_id = new_id
        self._plan = Plan()
        self._names = {name.version_id: name for name in view.names.values()}
        self._wants: dict[str, list[Want]] = defaultdict(list)
        for want in rows.wants:
            self._sort_out(want)
        # By what they serve; at most one runs per version.
        self._running = {e.version_id: e for e in rows.engines if e.desired == RUNNING}
        self._load = Counter(engine.cluster_id for engine in self._running.values())

    def plan(self) -> Plan:
        """The changes of this round."""
        for engine in tuple(self._running.values()):
            changed = self._revise(engine)
            if changed != engine:
                self._plan.updates.append((engine, changed))
            if changed.desired == DELETED:
                self._forget(engine)
        missing = [version for version in self._wants if self._is_awaited(version)]
        # The newest wish first, so that none starts an engine that the next one ends.
        for version in sorted(missing, key=lambda version: (-self._used_at(version), version)):
            self._place(version)
        for version, wants in self._wants.items():
            if version in self._running:
                self._plan.errors += [(want, "") for want in wants if want.error]
        return self._plan

    def _sort_out(self, want: Want) -> None:
        # What served a deleted adapter stays warm for its siblings until it is idle.
        known = want.engine_version_id in self._names
        limit = self._policy.idle_seconds if known else UNKNOWN_SECONDS
        if self._now - want.used_at > limit:
            self._plan.dropped.append(want)
        elif known:
            self._wants[want.engine_version_id].append(want)

    def _is_awaited(self, version: str) -> bool:
        """Whether somebody may still wait for an engine that there is not."""
        recent = self._now - self._used_at(version) < AWAITED_SECONDS
        known = any(want.version_id in self._names for want in self._wants[version])
        return version not in self._running and recent and known

    def _used_at(self, version: str) -> float:
        return max(want.used_at for want in self._wants[version])

    def _forget(self, engine: Engine) -> None:
        del self._running[engine.version_id]
        self._load[engine.cluster_id] -= 1

    def _revise(self, engine: Engine) -> Engine:
        wants = self._wants.get(engine.version_id)
        if not wants or engine.version_id not in self._names or self._is_lost(engine):
            return deleted(engine)
        engine = self._judge(engine, used_at=self._used_at(engine.version_id))
        if engine.failed_at:
            return engine
        adapters = self._adapters(wants)
        if set(adapters) != set(engine.adapters):
            return self._renewed(replace(engine, adapters=adapters))
        stale = self._now - engine.urls_at > self._policy.url_seconds
        if stale and not self._is_settled(engine):
            return self._renewed(engine)
        return engine

    def _is_lost(self, engine: Engine) -> bool:
        """Whether its cluster is away while another could take over."""
        return engine.cluster_id not in self._view.clusters and bool(self._candidates())

    def _judge(self, engine: Engine, *, used_at: float) -> Engine:
        """Notes an end that nobody asked for; begins again after a pause, if still wanted."""
        status = self._view.status(engine)
        if engine.failed_at:
            if self._now >= engine.retry_at and used_at > engine.failed_at:
                return self._renewed(replace(engine, failed_at=0.0, retry_at=0.0, error=""))
            return engine
        if status.generation != engine.generation:
            return engine
        if status.phase in ENDED:
            pause = min(RETRY_SECONDS * 2**engine.failures, RETRY_SECONDS_MOST)
            return replace(
                engine,
                failures=engine.failures + 1,
                failed_at=self._now,
                retry_at=self._now + pause,
                error=status.message or status.reason or "The engine stopped.",
            )
        if status.phase == clusters_pb2.PHASE_RUNNING and engine.failures:
            return replace(engine, failures=0)
        return engine

    def _adapters(self, wants: list[Want]) -> tuple[str, ...]:
        adapters = [
            want
            for want in wants
            if want.version_id != want.engine_version_id and want.version_id in self._names
        ]
        adapters.sort(key=lambda want: want.used_at, reverse=True)
        return tuple(want.version_id for want in adapters[: self._policy.max_adapters])

    def _is_settled(self, engine: Engine) -> bool:
        status = self._view.status(engine)
        loaded = {one.version_id for one in status.adapters if not one.error}
        return status.phase == clusters_pb2.PHASE_RUNNING and loaded >= set(engine.adapters)

    def _renewed(self, engine: Engine) -> Engine:
        return replace(engine, generation=engine.generation + 1, urls_at=self._now)

    def _candidates(self) -> list[clusters_pb2.Cluster]:
        return [
            cluster
            for cluster in self._view.clusters.values()
            if self._policy.engine in cluster.capacity.engines
        ]

    def _place(self, version: str) -> None:
        wants = self._wants[version]
        base = self._names[version]
        candidates = self._candidates()
        if not candidates:
            self._complain(wants, f"No live cluster has the engine {self._policy.engine!r}.")
            return
        if len(self._running) >= self._policy.max_engines and not self._evict(version):
            self._complain(wants, f"All {self._policy.max_engines} engines are in use.")
            return
        cluster = min(
            candidates, key=lambda one: (self._load[one.id] - one.capacity.engine_slots, one.id)
        )
        engine = self._new_engine(base, cluster.id, self._adapters(wants))
        self._plan.creates.append(engine)
        self._running[version] = engine
        self._load[cluster.id] += 1

    def _new_engine(self, base: Name, cluster_id: str, adapters: tuple[str, ...]) -> Engine:
        return Engine(
            id=self._new_id(),
            version_id=base.version_id,
            model=base.model,
            project_id=base.home,
            organization_id=base.organization_id,
            cluster_id=cluster_id,
            engine=self._policy.engine,
            desired=RUNNING,
            generation=1,
            put_generation=0,
            adapters=adapters,
            created_at=self._now,
            urls_at=self._now,
        )

    def _evict(self, version: str) -> bool:
        """Gives up the engine wanted longest ago, unless all are busy or wanted later than this."""
        bound = min(self._now - EVICTABLE_SECONDS, self._used_at(version))
        idle = [one for one in self._running.values() if self._used_at(one.version_id) < bound]
        if not idle:
            return False
        victim = min(idle, key=lambda engine: self._used_at(engine.version_id))
        # Without its wants, or the next round would start it again.
        self._plan.dropped += self._wants.pop(victim.version_id)
        self._plan.updates = [pair for pair in self._plan.updates if pair[0].id != victim.id]
        self._plan.updates.append((victim, deleted(victim)))
        self._forget(victim)
        return True

    def _complain(self, wants: list[Want], error: str) -> None:
        for want in wants:
            if self._now - want.since > PATIENCE_SECONDS and want.error != error:
                self._plan.errors.append((want, error))


def deleted(engine: Engine) -> Engine:
    """The engine as it shall be no more."""
    return replace(engine, desired=DELETED, generation=engine.generation + 1)
