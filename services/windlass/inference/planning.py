"""Planning of the changes that serve the wanted models within the bounds; pure."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from windlass.api.clusters.v1 import clusters_pb2
from windlass.core.backoff import doubled
from windlass.engine_arguments import UNCHOSEN
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
    Serving,
    View,
    WantedVersion,
    engine_bound,
)
from windlass.workload_phases import TERMINAL_PHASES

MESSAGE_LENGTH = 500
# The place of an engine: its version, and its number among the engines of that.
Slot = tuple[str, int]


@dataclass
class EngineChanges:
    """Changes of rows: each update names the engine as it was and as it shall be."""

    updates: list[tuple[Engine, Engine]] = field(default_factory=list)
    creates: list[Engine] = field(default_factory=list)
    dropped: list[WantedVersion] = field(default_factory=list)
    # Servings of models that are gone.
    ended: list[Serving] = field(default_factory=list)
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
        # How many engines of a version run whether or not somebody asks.
        self._pinned = Counter[str]()
        # Versions with fewer engines than they should have.
        self._lacking: set[str] = set()
        for want in rows.wants:
            self._sort_out(want)
        self._servings = {one.version_id: one for one in rows.servings}
        for serving in rows.servings:
            self._pin(serving)
        self._running = {
            (engine.version_id, engine.replica): engine
            for engine in rows.engines
            if engine.desired == RUNNING
        }
        self._load = Counter(engine.cluster_id for engine in self._running.values())
        self._shares = Counter(engine.project_id for engine in self._running.values())

    def plan(self) -> EngineChanges:
        """The changes of this round."""
        for engine in tuple(self._running.values()):
            changed = self._revise(engine)
            if changed != engine:
                self._plan.updates.append((engine, changed))
            if changed.desired == DELETED:
                self._forget(engine)
        self._trim()
        missing = [slot for version in self._wants for slot in self._missing(version)]
        # A project with few engines before one with many; then the newest wish, so that none
        # starts an engine that the next one ends.
        while missing := [slot for slot in missing if self._may_be_placed(slot[0])]:
            slot = min(missing, key=self._turn)
            missing.remove(slot)
            self._place(*slot)
        for version, wants in self._wants.items():
            if version not in self._lacking and (version, 0) in self._running:
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

    def _pin(self, serving: Serving) -> None:
        """Takes a serving for a wish of this moment."""
        version = serving.engine_version_id
        if version in self._names and serving.version_id in self._names:
            if not serving.min_replicas:
                return
            since, error = serving.updated_at, serving.error
            want = WantedVersion(serving.version_id, version, self._now, since, error, serving)
            self._wants[version].append(want)
            self._pinned[version] = max(self._pinned[version], serving.min_replicas)
        elif self._now - serving.updated_at > UNKNOWN_SECONDS:
            self._plan.ended.append(serving)

    def _missing(self, version: str) -> list[Slot]:
        """The engines that there should be and are not, while somebody may still wait for them."""
        recent = self._now - self._used_at(version) < AWAITED_SECONDS
        known = any(want.version_id in self._names for want in self._wants[version])
        if not (recent and known):
            return []
        slots = [(version, replica) for replica in range(self._replicas(version))]
        return [slot for slot in slots if slot not in self._running]

    def _may_be_placed(self, version: str) -> bool:
        """Returns False once the version was given up, or one of its engines found no place."""
        return version in self._wants and version not in self._lacking

    def _replicas(self, version: str) -> int:
        return max(1, self._pinned[version])

    def _used_at(self, version: str) -> float:
        return max(want.used_at for want in self._wants[version])

    def _is_kept_alone(self, version: str) -> bool:
        """Returns True if no request has asked for it for long, and a serving keeps it."""
        asked = [want.used_at for want in self._wants[version] if want.serving is None]
        return self._now - max(asked, default=0.0) > AWAITED_SECONDS

    def _forget(self, engine: Engine) -> None:
        del self._running[engine.version_id, engine.replica]
        self._load[engine.cluster_id] -= 1
        self._shares[engine.project_id] -= 1

    def _end(self, engine: Engine) -> None:
        """Ends an engine that runs for others' sake."""
        self._plan.updates = [pair for pair in self._plan.updates if pair[0].id != engine.id]
        self._plan.updates.append((engine, deleted(engine)))
        self._forget(engine)

    def _trim(self) -> None:
        """Ends kept engines beyond the bounds, which may be lower than when they were set."""
        spare = [
            engine
            for engine in self._running.values()
            if engine.replica or self._is_kept_alone(engine.version_id)
        ]
        for engine in sorted(spare, key=lambda one: (-one.replica, -one.created_at, one.id)):
            beyond = [scope for scope, own, bound in self._scopes(engine) if len(own) > bound]
            if beyond or len(self._running) > self._policy.max_engines:
                self._end(engine)

    def _revise(self, engine: Engine) -> Engine:
        wants = self._wants.get(engine.version_id)
        if not wants or engine.version_id not in self._names:
            return deleted(engine)
        if engine.replica >= self._replicas(engine.version_id):
            return deleted(engine)
        if self._is_forbidden(engine) or self._is_lost(engine) or self._is_outdated(engine):
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

    def _is_outdated(self, engine: Engine) -> bool:
        """Returns True if it runs otherwise than it should, and one that does could take over.

        Of those that answer one after the other: all others of its version answer meanwhile.
        """
        version = engine.version_id
        if engine == self._configured(engine) or not self._candidates(version):
            return False
        project = self._names[version].project_id
        answering = [one for one in self._engines_of(version) if self._view.answers(one, project)]
        return engine not in answering or len(answering) == self._replicas(version)

    def _configured(self, engine: Engine) -> Engine:
        """The engine as the serving of its model says that it should run."""
        serving = self._servings.get(engine.version_id)
        kind = self._kind(engine.version_id)
        if serving is None:
            return replace(engine, engine=kind, arguments=UNCHOSEN, gpus=0)
        return replace(engine, engine=kind, arguments=serving.arguments, gpus=serving.gpus)

    def _kind(self, version: str) -> str:
        serving = self._servings.get(version)
        return (serving and serving.engine) or self._policy.engine

    def _gpus(self, version: str) -> int:
        serving = self._servings.get(version)
        return serving.gpus if serving else 0

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
        # What requests ask for comes before what is only kept.
        adapters.sort(key=lambda one: (one.serving is not None, -one.used_at, one.version_id))
        versions = dict.fromkeys(want.version_id for want in adapters)
        return tuple(versions)[: self._policy.max_adapters]

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
            if self._kind(version) in cluster.capacity.engines
            and self._gpus(version) <= cluster.capacity.gpus
            and self._view.permits(cluster.id, self._names[version].project_id)
            and self._view.reaches(cluster.id)
        ]

    def _order(
        self, version: str, cluster: clusters_pb2.Cluster
    ) -> tuple[bool, int, bool, int, str]:
        """Returns the sort key of a cluster: room first, then few of the same engines, then
        assigned ones, then load.
        """
        load, full = self._load[cluster.id], self._is_full(cluster)
        same = sum(one.cluster_id == cluster.id for one in self._engines_of(version))
        return full, same, cluster.shared, load, cluster.id

    def _is_full(self, cluster: clusters_pb2.Cluster) -> bool:
        return self._load[cluster.id] >= cluster.capacity.engine_slots

    def _engines_of(self, version: str) -> list[Engine]:
        slots = ((version, replica) for replica in range(self._replicas(version)))
        return [self._running[slot] for slot in slots if slot in self._running]

    def _turn(self, slot: Slot) -> tuple[int, int, float, str]:
        """The place of an engine in the order of those that are missing."""
        version, replica = slot
        share = self._share(self._names[version].project_id)
        return share, replica, -self._used_at(version), version

    def _share(self, project_id: str) -> int:
        """The number of a project's engines; those of global models are nobody's."""
        return self._shares[project_id] if project_id else 0

    def _place(self, version: str, replica: int) -> None:
        wants = self._wants[version]
        base = self._names[version]
        candidates = self._candidates(version)
        # Nobody has to yield to the second engine of a model.
        yields = not replica
        if not candidates:
            self._complain(version, self._why_nowhere(version))
            return
        if replica and all(self._is_full(cluster) for cluster in candidates):
            self._complain(version, "No cluster has room for another engine.")
            return
        if refusal := self._beyond_quota(base, yields=yields):
            self._complain(version, refusal)
            return
        full = len(self._running) >= self._policy.max_engines
        if full and not (yields and self._evict(version)):
            self._complain(
                version, f"All {self._policy.max_engines} engines of the installation are in use."
            )
            return
        cluster = min(candidates, key=partial(self._order, version))
        adapters = self._adapters(wants, cluster.id)
        engine = self._new_engine(base, replica, cluster.id, adapters)
        self._plan.creates.append(engine)
        self._running[version, replica] = engine
        self._load[cluster.id] += 1
        self._shares[engine.project_id] += 1

    def _new_engine(
        self, base: Name, replica: int, cluster_id: str, adapters: tuple[str, ...]
    ) -> Engine:
        engine = Engine(
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
            replica=replica,
        )
        return self._configured(engine)

    def _scopes(self, one: Name | Engine) -> Iterator[tuple[str, list[Engine], int]]:
        """Yields whose quotas bound the engines of a model: the word, their engines, the bound."""
        if not one.project_id:
            return
        for scope in ("project", "organization"):
            identifier: str = getattr(one, f"{scope}_id")
            bound = engine_bound(self._quotas, scope, identifier)
            running = self._running.values()
            own = [
                engine
                for engine in running
                if engine.project_id and getattr(engine, f"{scope}_id") == identifier
            ]
            if bound:
                yield scope, own, bound

    def _beyond_quota(self, base: Name, *, yields: bool) -> str:
        """Returns why its tenants may have no engine more, once no idle one of theirs makes
        room.
        """
        for scope, own, bound in self._scopes(base):
            if len(own) >= bound and not (yields and self._evict(base.version_id, among=own)):
                return f"The {scope}'s {bound} engines are in use, which is its quota."
        return ""

    def _evict(self, version: str, *, among: Sequence[Engine] | None = None) -> bool:
        """Gives up an engine, unless all are busy or wanted later than this.

        Of those that are idle, one of the project that has the most, wanted longest ago. A
        project that has none and has waited gets a busy one of a project that has several. What
        no request asks for takes the place of its own project's engines alone.
        """
        bound = min(self._now - EVICTABLE_SECONDS, self._used_at(version))
        made = {engine.id for engine in self._plan.creates}
        running = self._running.values() if among is None else among
        old = [engine for engine in running if engine.id not in made]
        if self._is_kept_alone(version):
            project = self._names[version].project_id
            old = [engine for engine in old if engine.project_id == project]
        idle = [engine for engine in old if self._is_idle(engine, bound)]
        if not idle and self._waits_without_any(version):
            idle = [engine for engine in old if self._share(engine.project_id) > 1]
        if not idle:
            return False
        victim = min(
            idle,
            key=lambda engine: (
                -self._share(engine.project_id),
                self._used_at(engine.version_id),
                -engine.replica,
            ),
        )
        self._end(victim)
        if not self._engines_of(victim.version_id):
            # Without its wants, or the next round would start it again.
            dropped = self._wants.pop(victim.version_id)
            self._plan.dropped += [want for want in dropped if want.serving is None]
        return True

    def _is_idle(self, engine: Engine, bound: float) -> bool:
        """Returns True if nobody misses it: not wanted since, or kept and unable to start."""
        fails = engine.failed_at and self._is_kept_alone(engine.version_id)
        return bool(fails) or self._used_at(engine.version_id) < bound

    def _waits_without_any(self, version: str) -> bool:
        project = self._names[version].project_id
        since = min(want.since for want in self._wants[version])
        return not self._share(project) and self._now - since > FAIR_SECONDS

    def _why_nowhere(self, version: str) -> str:
        engine = self._kind(version)
        if not any(engine in one.capacity.engines for one in self._view.clusters.values()):
            return f"No live cluster has the engine {engine!r}."
        most = max(one.capacity.gpus for one in self._view.clusters.values())
        if (gpus := self._gpus(version)) > most:
            return f"Each engine should have {gpus} GPUs; the largest live cluster has {most}."
        return (
            f"No live cluster with the engine {engine!r} is reachable and assigned to the "
            "model's project; see `windlass clusters assign`."
        )

    def _complain(self, version: str, error: str) -> None:
        self._lacking.add(version)
        for want in self._wants[version]:
            if self._now - want.since > PATIENCE_SECONDS and want.error != error:
                self._plan.errors.append((want, error))


def deleted(engine: Engine) -> Engine:
    """The engine as it shall be no more."""
    return replace(engine, desired=DELETED, generation=engine.generation + 1)


def _reason(status: clusters_pb2.WorkloadStatus) -> str:
    """Returns why an engine ended, on one line whatever its agent says."""
    reason = " ".join((status.message or status.reason).split())[:MESSAGE_LENGTH]
    return reason or "The engine stopped."
