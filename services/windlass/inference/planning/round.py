"""State of one round of planning: what is wanted, what runs, and what is decided so far."""

from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import replace

from windlass.api.clusters.v1 import clusters_pb2
from windlass.inference.copies import why_not_loaded
from windlass.inference.domain import (
    AWAITED_SECONDS,
    PATIENCE_SECONDS,
    RUNNING,
    UNKNOWN_SECONDS,
    WAITED_SECONDS,
    Engine,
    GatewayLine,
    InferencePolicy,
    Name,
    Rows,
    Serving,
    View,
    WantedVersion,
)
from windlass.inference.places import QuotaRoom, VersionSettings
from windlass.inference.planning.changes import EngineChanges, deleted
from windlass.inference.planning.scaling import (
    AWAY,
    EngineUse,
    ModelLoad,
    ScaleBounds,
    Scalers,
)
from windlass.inference.planning.waits import Waits
from windlass.inference.stacks.stack import REACHES

# The place of an engine: its version, and its number among the engines of that.
Slot = tuple[str, int]
# The number of an engine that another cluster is asked for beside those of its version.
SUBSTITUTE = 1000

# Kinds that can sleep however they were started.
UNTOLD = frozenset({"builtin", "llamacpp"})


class Round:
    """One set of rows and one view of the clusters, with the changes decided on them."""

    def __init__(
        self,
        rows: Rows,
        view: View,
        policy: InferencePolicy,
        scalers: Scalers,
        waits: Waits,
        new_id: Callable[[], str],
    ):
        self.now = rows.now
        self.quotas = rows.quotas
        self.view = view
        self.names = view.names
        self.policy = policy
        self.settings = VersionSettings(view.names, rows.servings, rows.stacks, policy)
        self.new_id = new_id
        self.waits = waits
        self.changes = EngineChanges()
        self.wants: dict[str, list[WantedVersion]] = defaultdict(list)
        # Versions with fewer engines than they should have.
        self.lacking: set[str] = set()
        self.running: dict[Slot, Engine] = {
            (engine.version_id, engine.replica): engine
            for engine in rows.engines
            if engine.desired == RUNNING
        }
        self._ids = {engine.id for engine in self.running.values()}
        # As they were, of those that have another number now.
        self._rows: dict[str, Engine] = {}
        # Ids of engines on which something was decided.
        self._noted: set[str] = set()
        self._prefetched = rows.prefetched
        self.quota = QuotaRoom(view, self.running.values())
        self.load = Counter(engine.cluster_id for engine in self.counted())
        # How many engines of a version run whether or not somebody asks.
        self._pinned = Counter[str]()
        self._shares = Counter(engine.project_id for engine in self.counted())
        # Versions of which an engine answers.
        self._answering = {
            engine.version_id
            for engine in self.running.values()
            if engine.version_id in self.names and self.answers(engine)
        }
        for want in rows.wants:
            self._sort_out(want)
        for serving in rows.servings:
            self._pin(serving)
        # Whoever trains an engine uses it, until a checkpoint has what it learned.
        self.trained = {one for one in rows.trained if one in self.names}
        for version in self.trained:
            self.wants[version].append(WantedVersion(version, version, self.now, self.now))
        # How many load asks for.
        self._scaled = {
            one.version_id: self._scale(one, rows, scalers)
            for one in rows.servings
            if one.scales and self.wants.get(one.version_id)
        }
        scalers.keep(set(self._scaled))
        waits.observe(self.now, self.running.values(), view)
        # Clusters where others ended for engines that are asked for and have not started yet.
        self.promised = {
            engine.cluster_id
            for engine in self.running.values()
            if waits.was_given_place(engine, self.now) and not self.is_kept_alone(engine.version_id)
        }

    def _sort_out(self, want: WantedVersion) -> None:
        if name := self.names.get(want.version_id):
            want = replace(want, engine_version_id=name.engine_version_id)
        # What served a deleted adapter stays warm for its siblings until it is idle.
        known = want.engine_version_id in self.names
        limit = self.settings.idle_seconds(want.engine_version_id) if known else UNKNOWN_SECONDS
        if want.engine_version_id not in self._answering:
            # Whoever waits for its start says so every ten seconds.
            limit = max(limit, WAITED_SECONDS)
        if self.now - want.used_at > limit:
            self.changes.dropped.append(want)
        elif name is not None and self._nobody_loads(name):
            # Its route says so for as long as somebody asks; no engine starts for it.
            return
        elif known:
            self.wants[want.engine_version_id].append(want)

    def _pin(self, serving: Serving) -> None:
        """Takes a serving for a wish of this moment."""
        name = self.names.get(serving.version_id)
        version = name.engine_version_id if name else serving.engine_version_id
        if version in self.names and name is not None:
            if self._nobody_loads(name):
                return
            least = serving.least(self.now)
            if not least:
                return
            since, error = serving.updated_at, serving.error
            want = WantedVersion(serving.version_id, version, self.now, since, error, serving)
            self.wants[version].append(want)
            self._pinned[version] = max(self._pinned[version], least)
        elif self.now - serving.updated_at > UNKNOWN_SECONDS:
            self.changes.ended.append(serving)

    def _nobody_loads(self, name: Name) -> bool:
        """Returns True for an adapter that no engine of its base loads, now or once it starts."""
        base = name.engine_version_id
        there = (engine for engine in self.running.values() if engine.version_id == base)
        return bool(name.refused) and all(why_not_loaded(engine, name) for engine in there)

    def has_loaded(self, engine: Engine, version: str) -> bool:
        """Returns True if an engine answers for an adapter."""
        return self.answers(engine) and self.view.has_loaded(engine, version)

    def replicas(self, version: str) -> int:
        """The number of engines that a wanted version should have."""
        return max(1, self._pinned[version], self._scaled.get(version, 0))

    def _scale(self, serving: Serving, rows: Rows, scalers: Scalers) -> int:
        bounds = ScaleBounds.of(serving, self.now)
        version = serving.version_id
        engines = [
            engine
            for slot, engine in self.running.items()
            if slot[0] == version and slot[1] < bounds.most
        ]
        line = rows.lines.get(version, GatewayLine())
        # What was said by an engine that is away now counts no more.
        uses = [
            EngineUse.said(self.view.load(one)) if self.answers(one) else AWAY for one in engines
        ]
        load = ModelLoad(
            rows.loads.get(version, 0), line.requests, line.seconds, line.background, uses
        )
        return scalers.decide(version, self.now, len(engines), load, bounds)

    def used_at(self, version: str) -> float:
        """The time when a wanted version was wanted last."""
        return max((want.used_at for want in self.wants.get(version, ())), default=0.0)

    def asked_at(self, version: str) -> float:
        """The time when a request asked for a version or an adapter of it last; 0 for none."""
        wants = self.wants.get(version, ())
        return max((want.used_at for want in wants if want.serving is None), default=0.0)

    def is_kept_alone(self, version: str) -> bool:
        """Returns True if no request has asked for it for long, and a serving keeps it."""
        return self.now - self.asked_at(version) > AWAITED_SECONDS

    def counted(self) -> list[Engine]:
        """The engines that take places: those of other people's stacks take none."""
        return [engine for engine in self.running.values() if not engine.is_adopted]

    def share(self, project_id: str) -> int:
        """The number of a project's engines; those of global models are nobody's."""
        return self._shares[project_id] if project_id else 0

    def engines_of(self, version: str) -> list[Engine]:
        """The engines in the places of a version, without those that will replace them."""
        slots = ((version, replica) for replica in range(self.replicas(version)))
        return [self.running[slot] for slot in slots if slot in self.running]

    def answers(self, engine: Engine) -> bool:
        """Returns True if requests for the engine's own version can be sent to it."""
        own = engine.version_id
        if engine.is_dedicated and not self.view.has_loaded(engine, own):
            return False
        return self.view.answers(engine, self.names[own].project_id)

    def configured(self, engine: Engine) -> Engine:
        """The engine as the serving of its model says that it should run."""
        cluster = self.view.clusters.get(engine.cluster_id)
        is_new = engine.id not in self._ids
        fits = not is_new and self.answers(engine)
        return self.settings.configured(engine, cluster, is_new=is_new, fits=fits)

    def sleeps_untold(self, engine: Engine) -> bool:
        """Returns True if an engine can sleep where it is, though it may not be started for it."""
        cluster = self.view.clusters.get(engine.cluster_id)
        can = cluster is None or engine.engine in cluster.capacity.sleeping_engines
        return engine.engine in UNTOLD and can

    def candidates(self, version: str) -> list[clusters_pb2.Cluster]:
        """The clusters that may start an engine of a version, full ones among them.

        What ended for another is not started in its place because it is kept running.
        """
        able = self.able(version)
        if not self.promised or not self.is_kept_alone(version):
            return able
        return [one for one in able if one.id not in self.promised]

    def able(self, version: str) -> list[clusters_pb2.Cluster]:
        """The clusters that could run an engine of a version, whoever else starts there."""
        settings = self.settings
        if settings.lacks(settings.draft_id(version)):
            return []
        wish, project = settings.wish(version), self.names[version].project_id
        return [
            cluster
            for cluster in self.view.clusters.values()
            if self.runs(version, cluster)
            and settings.weight(version, cluster.id)
            and wish.gpus * wish.nodes <= cluster.capacity.gpus
            and not settings.refusal(version, cluster)
            and self.view.permits(cluster.id, project)
            and self.view.has_place(cluster.id, project)
            and self.view.reaches(cluster.id)
        ]

    def runs(self, version: str, cluster: clusters_pb2.Cluster) -> bool:
        """Returns True if a cluster has the kind of engine of a version, or reaches its stack."""
        if self.names[version].stack:
            stack = self.settings.stack(version)
            is_there = stack is not None and cluster.id == stack.cluster_id
            return is_there and REACHES in cluster.capacity.engines
        kind = self.settings.kind(version)
        if self.settings.training(version) and kind not in cluster.capacity.training_engines:
            return False
        if self.settings.sleep_seconds(version) and kind not in cluster.capacity.sleeping_engines:
            return False
        return kind in (
            cluster.capacity.grouped_engines
            if self.settings.wish(version).nodes > 1
            else cluster.capacity.engines
        )

    def is_full(self, cluster: clusters_pb2.Cluster) -> bool:
        """Returns True if a cluster has no place for another engine."""
        return self.load[cluster.id] >= cluster.capacity.engine_slots

    def has_files(self, cluster_id: str, version: str) -> bool:
        """Returns True if the files of a version are in a cluster already, as far as is known."""
        files, cluster = self.names[version].files_version_id, self.view.clusters[cluster_id]
        return (cluster_id, files) in self._prefetched or files in cluster.capacity.model_versions

    def renewed(self, engine: Engine) -> Engine:
        """The engine's next generation, with fresh URLs."""
        return replace(engine, generation=engine.generation + 1, urls_at=self.now)

    def add(self, engine: Engine) -> None:
        """Starts an engine."""
        self.changes.creates.append(engine)
        self.running[engine.version_id, engine.replica] = engine
        self._take_place(engine, 1)

    def note(self, engine: Engine, changed: Engine) -> None:
        """Decides how an engine shall be, in the place of what was decided on it before."""
        row = self._rows.get(engine.id, engine)
        if row.id in self._noted:
            self.changes.updates = [pair for pair in self.changes.updates if pair[0].id != row.id]
        if changed != row:
            self.changes.updates.append((row, changed))
            self._noted.add(row.id)

    def revise(self, engine: Engine, changed: Engine) -> None:
        """Decides how an engine shall be; whoever looks at it later in the round sees it so."""
        self.note(engine, changed)
        self._rows.setdefault(engine.id, engine)
        self.running[engine.version_id, engine.replica] = changed

    def move(self, engine: Engine, replica: int) -> None:
        """Gives an engine another number, which is free; its cluster need not know."""
        moved = replace(engine, replica=replica)
        self._rows.setdefault(engine.id, engine)
        self.note(engine, moved)
        del self.running[engine.version_id, engine.replica]
        self.running[engine.version_id, replica] = moved

    def end(self, engine: Engine) -> None:
        """Ends an engine, whatever else was decided on it."""
        self.note(engine, deleted(engine))
        self.forget(engine)

    def forget(self, engine: Engine) -> None:
        """Counts an engine no more."""
        del self.running[engine.version_id, engine.replica]
        self._take_place(engine, -1)

    def _take_place(self, engine: Engine, number: int) -> None:
        if not engine.is_adopted:
            self.load[engine.cluster_id] += number
            self._shares[engine.project_id] += number
            self.quota.count(engine, number)

    def complain(self, version: str, error: str) -> None:
        """Says why a version has fewer engines than it should have, once that has lasted."""
        self.lacking.add(version)
        for want in self.wants[version]:
            if self.now - want.since > PATIENCE_SECONDS and want.error != error:
                self.changes.errors.append((want, error))
