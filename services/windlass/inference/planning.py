"""Planning of the changes that serve the wanted models within the bounds; pure."""

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from windlass.api.clusters.v1 import clusters_pb2
from windlass.core.backoff import doubled
from windlass.inference.domain import (
    AWAITED_SECONDS,
    DELETED,
    EVICTABLE_SECONDS,
    FAIR_SECONDS,
    MAX_RETRY_SECONDS,
    PATIENCE_SECONDS,
    RETRY_SECONDS,
    RUNNING,
    UNKNOWN_SECONDS,
    Engine,
    InferencePolicy,
    Name,
    Rows,
    View,
    WantedVersion,
)
from windlass.workload_phases import TERMINAL_PHASES

MESSAGE_LENGTH = 500


@dataclass
class EngineChanges:
    """Changes of rows: each update names the engine as it was and as it shall be."""

    updates: list[tuple[Engine, Engine]] = field(default_factory=list)
    creates: list[Engine] = field(default_factory=list)
    dropped: list[WantedVersion] = field(default_factory=list)
    errors: list[tuple[WantedVersion, str]] = field(default_factory=list)


class Planner:
    """One round of planning over one set of rows and one view."""

    def __init__(self, rows: Rows, view: View, policy: InferencePolicy, new_id: Callable[[], str]):
        self._now = rows.now
        self._quotas = rows.quotas
        self._view = view
        self._policy = policy
        self._new_id = new_id
        self._plan = EngineChanges()
        self._names = view.names
        self._wants: dict[str, list[WantedVersion]] = defaultdict(list)
        for want in rows.wants:
            self._sort_out(want)
        # By what they serve; at most one runs per version.
        self._running = {e.version_id: e for e in rows.engines if e.desired == RUNNING}
        self._load = Counter(engine.cluster_id for engine in self._running.values())

    def plan(self) -> EngineChanges:
        """The changes of this round."""
        for engine in tuple(self._running.values()):
            changed = self._revise(engine)
            if changed != engine:
                self._plan.updates.append((engine, changed))
            if changed.desired == DELETED:
                self._forget(engine)
        missing = [version for version in self._wants if self._is_awaited(version)]
        # A project with few engines before one with many; then the newest wish, so that none
        # starts an engine that the next one ends.
        while missing:
            version = min(missing, key=self._turn)
            missing.remove(version)
            self._place(version)
        for version, wants in self._wants.items():
            if version in self._running:
                self._plan.errors += [(want, "") for want in wants if want.error]
        return self._plan

    def _sort_out(self, want: WantedVersion) -> None:
        # What served a deleted adapter stays warm for its siblings until it is idle.
        known = want.engine_version_id in self._names
        limit = self._policy.idle_seconds if known else UNKNOWN_SECONDS
        if self._now - want.used_at > limit:
            self._plan.dropped.append(want)
        elif known:
            self._wants[want.engine_version_id].append(want)

    def _is_awaited(self, version: str) -> bool:
        """Returns True if somebody may still wait for an engine that there is not."""
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
        if not wants or engine.version_id not in self._names:
            return deleted(engine)
        if self._is_forbidden(engine) or self._is_lost(engine):
            return deleted(engine)
        engine = self._judge(engine, used_at=self._used_at(engine.version_id))
        if engine.failed_at:
            return engine
        adapters = self._adapters(wants, engine.cluster_id)
        if set(adapters) != set(engine.adapters):
            return self._renewed(replace(engine, adapters=adapters))
        stale = self._now - engine.urls_at > self._policy.url_seconds
        if stale and not self._is_settled(engine):
            return self._renewed(engine)
        return engine

    def _is_forbidden(self, engine: Engine) -> bool:
        """Returns True if its cluster lives and may not have it any more."""
        project = self._names[engine.version_id].project_id
        is_there = engine.cluster_id in self._view.clusters
        return is_there and not self._view.permits(engine.cluster_id, project)

    def _is_lost(self, engine: Engine) -> bool:
        """Returns True if its cluster is away or out of reach while another could take over."""
        away = not self._view.reaches(engine.cluster_id)
        return away and bool(self._candidates(engine.version_id))

    def _judge(self, engine: Engine, *, used_at: float) -> Engine:
        """Notes an end that nobody asked for; begins again after a pause, if still wanted."""
        status = self._view.status(engine)
        if engine.failed_at:
            if self._now >= engine.retry_at and used_at > engine.failed_at:
                return self._renewed(replace(engine, failed_at=0.0, retry_at=0.0, error=""))
            return engine
        if status.generation != engine.generation:
            return engine
        if status.phase in TERMINAL_PHASES:
            pause = doubled(RETRY_SECONDS, engine.failures, longest=MAX_RETRY_SECONDS)
            return replace(
                engine,
                failures=engine.failures + 1,
                failed_at=self._now,
                retry_at=self._now + pause,
                error=f"{_reason(status)} (engine {engine.id})",
            )
        if status.phase == clusters_pb2.PHASE_RUNNING and engine.failures:
            return replace(engine, failures=0)
        return engine

    def _adapters(self, wants: list[WantedVersion], cluster_id: str) -> tuple[str, ...]:
        adapters = [
            want
            for want in wants
            if want.version_id != want.engine_version_id
            and want.version_id in self._names
            and self._may_have(cluster_id, want.version_id)
        ]
        adapters.sort(key=lambda want: want.used_at, reverse=True)
        return tuple(want.version_id for want in adapters[: self._policy.max_adapters])

    def _may_have(self, cluster_id: str, version: str) -> bool:
        """True if an adapter may go where its engine is; what an absent cluster has stays."""
        away = cluster_id not in self._view.clusters
        return away or self._view.permits(cluster_id, self._names[version].project_id)

    def _is_settled(self, engine: Engine) -> bool:
        status = self._view.status(engine)
        loaded = {one.version_id for one in status.adapters if not one.error}
        return status.phase == clusters_pb2.PHASE_RUNNING and loaded >= set(engine.adapters)

    def _renewed(self, engine: Engine) -> Engine:
        return replace(engine, generation=engine.generation + 1, urls_at=self._now)

    def _candidates(self, version: str) -> list[clusters_pb2.Cluster]:
        return [
            cluster
            for cluster in self._view.clusters.values()
            if self._policy.engine in cluster.capacity.engines
            and self._view.permits(cluster.id, self._names[version].project_id)
            and self._view.reaches(cluster.id)
        ]

    def _order(self, cluster: clusters_pb2.Cluster) -> tuple[bool, bool, int, str]:
        """Those with room first, then those assigned; how many slots one offers attracts none."""
        load = self._load[cluster.id]
        return load >= cluster.capacity.engine_slots, cluster.shared, load, cluster.id

    def _turn(self, version: str) -> tuple[int, float, str]:
        """The place of a wish in the order for engines."""
        return self._share(self._names[version].project_id), -self._used_at(version), version

    def _share(self, project_id: str) -> int:
        """The number of a project's engines; those of global models are nobody's."""
        if not project_id:
            return 0
        return sum(engine.project_id == project_id for engine in self._running.values())

    def _place(self, version: str) -> None:
        wants = self._wants[version]
        base = self._names[version]
        candidates = self._candidates(version)
        if not candidates:
            self._complain(wants, self._why_nowhere())
            return
        if refusal := self._beyond_quota(base):
            self._complain(wants, refusal)
            return
        if len(self._running) >= self._policy.max_engines and not self._evict(version):
            self._complain(
                wants, f"All {self._policy.max_engines} engines of the installation are in use."
            )
            return
        cluster = min(candidates, key=self._order)
        engine = self._new_engine(base, cluster.id, self._adapters(wants, cluster.id))
        self._plan.creates.append(engine)
        self._running[version] = engine
        self._load[cluster.id] += 1

    def _new_engine(self, base: Name, cluster_id: str, adapters: tuple[str, ...]) -> Engine:
        return Engine(
            id=self._new_id(),
            version_id=base.version_id,
            model=base.model,
            project_id=base.project_id,
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

    def _beyond_quota(self, base: Name) -> str:
        """Returns why its tenants may have no engine more, once no idle one of theirs makes
        room.
        """
        for scope, identifier in (
            ("project", base.project_id),
            ("organization", base.project_id and base.organization_id),
        ):
            if not identifier:
                continue
            bound = self._quotas.get(identifier, self._quotas.get(scope, 0))
            own = [
                engine
                for engine in self._running.values()
                if getattr(engine, f"{scope}_id") == identifier and engine.project_id
            ]
            if bound and len(own) >= bound and not self._evict(base.version_id, among=own):
                return f"The {scope}'s {bound} engines are in use, which is its quota."
        return ""

    def _evict(self, version: str, *, among: Sequence[Engine] | None = None) -> bool:
        """Gives up an engine, unless all are busy or wanted later than this.

        Of those that are idle, one of the project that has the most, wanted longest ago. A
        project that has none and has waited gets a busy one of a project that has several.
        """
        bound = min(self._now - EVICTABLE_SECONDS, self._used_at(version))
        made = {engine.id for engine in self._plan.creates}
        old = [
            engine
            for engine in (self._running.values() if among is None else among)
            if engine.id not in made
        ]
        idle = [engine for engine in old if self._used_at(engine.version_id) < bound]
        if not idle and among is None and self._waits_without_any(version):
            idle = [engine for engine in old if self._share(engine.project_id) > 1]
        if not idle:
            return False
        victim = min(
            idle,
            key=lambda engine: (-self._share(engine.project_id), self._used_at(engine.version_id)),
        )
        # Without its wants, or the next round would start it again.
        self._plan.dropped += self._wants.pop(victim.version_id)
        self._plan.updates = [pair for pair in self._plan.updates if pair[0].id != victim.id]
        self._plan.updates.append((victim, deleted(victim)))
        self._forget(victim)
        return True

    def _waits_without_any(self, version: str) -> bool:
        project = self._names[version].project_id
        since = min(want.since for want in self._wants[version])
        return not self._share(project) and self._now - since > FAIR_SECONDS

    def _why_nowhere(self) -> str:
        engine = self._policy.engine
        if not any(engine in one.capacity.engines for one in self._view.clusters.values()):
            return f"No live cluster has the engine {engine!r}."
        return (
            f"No live cluster with the engine {engine!r} is reachable and assigned to the "
            "model's project; see `windlass clusters assign`."
        )

    def _complain(self, wants: list[WantedVersion], error: str) -> None:
        for want in wants:
            if self._now - want.since > PATIENCE_SECONDS and want.error != error:
                self._plan.errors.append((want, error))


def deleted(engine: Engine) -> Engine:
    """The engine as it shall be no more."""
    return replace(engine, desired=DELETED, generation=engine.generation + 1)


def _reason(status: clusters_pb2.WorkloadStatus) -> str:
    """Why an engine ended, on one line whatever its agent says."""
    reason = " ".join((status.message or status.reason).split())[:MESSAGE_LENGTH]
    return reason or "The engine stopped."
