"""State of one round of planning: what is wanted, what runs, and what is decided so far."""

from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import replace

from windlass.api.clusters.v1 import clusters_pb2
from windlass.bounds import NORMAL_PRIORITY, PRIORITIES, TARGET_REQUESTS
from windlass.engine_arguments import UNCHOSEN, completed
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
from windlass.inference.planning.changes import EngineChanges, deleted
from windlass.inference.planning.devices import DIVIDE, DeviceCheck, EngineWish
from windlass.inference.planning.scaling import (
    AWAY,
    EngineUse,
    ModelLoad,
    ScaleBounds,
    Scalers,
)
from windlass.inference.planning.waits import Waits
from windlass.inference.stacks.stack import REACHES, Stack

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
        self._wishes: dict[str, EngineWish] = {}
        self.devices = DeviceCheck(policy.max_adapters)
        # As they were, of those that have another number now.
        self._rows: dict[str, Engine] = {}
        # Ids of engines on which something was decided.
        self._noted: set[str] = set()
        self._stacks = rows.stacks
        self.load = Counter(engine.cluster_id for engine in self.counted())
        # How many engines of a version run whether or not somebody asks.
        self._pinned = Counter[str]()
        self._servings = {one.version_id: one for one in rows.servings}
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
        limit = self._idle_seconds(want.engine_version_id) if known else UNKNOWN_SECONDS
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
        loaded = self.view.status(engine).adapters
        return self.answers(engine) and any(
            one.version_id == version and not one.error for one in loaded
        )

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

    def target(self, version: str) -> int:
        """The open requests that each engine of a version should have."""
        serving = self._serving(version)
        return (serving and serving.target_requests) or TARGET_REQUESTS

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
        return self.view.answers(engine, self.view.names[engine.version_id].project_id)

    def configured(self, engine: Engine) -> Engine:
        """The engine as the serving of its model says that it should run."""
        wish = self.wish(engine.version_id)
        return replace(
            engine,
            engine=wish.kind,
            arguments=wish.arguments,
            gpus=wish.gpus if wish.gpus or wish.nodes > 1 else self._fitting(engine, wish),
            # An engine of before there were several has none.
            nodes=wish.nodes if wish.nodes > 1 else 0,
            accelerator=wish.accelerator,
            memory_bytes=wish.memory_bytes,
            priority=wish.priority,
            draft_version_id=self.draft_id(engine.version_id),
            sleeps=bool(self.sleep_seconds(engine.version_id)),
        )

    def wish(self, version: str) -> EngineWish:
        """The needs of each engine of a version, wherever it runs."""
        if version not in self._wishes:
            kind, serving = self.kind(version), self._serving(version)
            arguments = serving.arguments if serving else UNCHOSEN
            self._wishes[version] = EngineWish(
                name=self.names[version],
                kind=kind,
                arguments=completed(arguments, self.names[version].derived(kind)),
                gpus=serving.gpus if serving else 0,
                nodes=max(1, serving.nodes) if serving else 1,
                draft=self.names.get(self.draft_id(version)),
                accelerator=serving.accelerator if serving else "",
                memory_bytes=serving.memory_bytes if serving else 0,
                priority=serving.priority if serving else NORMAL_PRIORITY,
            )
        return self._wishes[version]

    def rank(self, version: str) -> int:
        """The place of a version's priority among priorities, the lowest being 0."""
        return PRIORITIES.index(self.wish(version).priority)

    def kind(self, version: str) -> str:
        """The kind of engine that a version should have."""
        if name := self.names[version].stack:
            return self._stacks[name].kind if name in self._stacks else REACHES
        serving = self._serving(version)
        return (serving and serving.engine) or self.policy.engine

    def weight(self, version: str, cluster_id: str) -> int:
        """The share of a version's engines that a cluster should have; 0: none may run there."""
        serving = self._serving(version)
        return serving.weight(cluster_id) if serving else 1

    def _idle_seconds(self, version: str) -> float:
        serving = self._serving(version)
        return (serving and serving.idle_seconds) or self.policy.idle_seconds

    def sleep_seconds(self, version: str) -> int:
        """The seconds without a request before engines of a version sleep; 0: they do not."""
        serving = self._serving(version)
        return serving.sleep_seconds if serving else 0

    def sleeps_untold(self, engine: Engine) -> bool:
        """Returns True if an engine can sleep where it is, though it may not be started for it."""
        cluster = self.view.clusters.get(engine.cluster_id)
        can = cluster is None or engine.engine in cluster.capacity.sleeping_engines
        return engine.engine in UNTOLD and can

    def _serving(self, version: str) -> Serving | None:
        """The serving that says how the engines of a version run."""
        return self._servings.get(self.names[version].settings_version_id)

    def draft_id(self, version: str) -> str:
        """The version that guesses for the engines of a version; empty for none."""
        serving = self._serving(version)
        return serving.draft_version_id if serving else ""

    def lacks(self, draft_id: str) -> bool:
        """Returns True for a draft that was deleted."""
        return bool(draft_id) and draft_id not in self.names

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
        if self.lacks(self.draft_id(version)):
            return []
        wish, project = self.wish(version), self.names[version].project_id
        return [
            cluster
            for cluster in self.view.clusters.values()
            if self.runs(version, cluster)
            and self.weight(version, cluster.id)
            and wish.gpus * wish.nodes <= cluster.capacity.gpus
            and not self.refusal(version, cluster)
            and self.view.permits(cluster.id, project)
            and self.view.has_place(cluster.id, project)
            and self.view.reaches(cluster.id)
        ]

    def runs(self, version: str, cluster: clusters_pb2.Cluster) -> bool:
        """Returns True if a cluster has the kind of engine of a version, or reaches its stack."""
        if self.names[version].stack:
            stack = self.stack(version)
            is_there = stack is not None and cluster.id == stack.cluster_id
            return is_there and REACHES in cluster.capacity.engines
        kind = self.kind(version)
        if self.sleep_seconds(version) and kind not in cluster.capacity.sleeping_engines:
            return False
        return kind in (
            cluster.capacity.grouped_engines
            if self.wish(version).nodes > 1
            else cluster.capacity.engines
        )

    def stack(self, version: str) -> Stack | None:
        """The serving stack that has a version; None of a model of ours, or an unknown stack."""
        return self._stacks.get(self.names[version].stack)

    def refusal(self, version: str, cluster: clusters_pb2.Cluster) -> str:
        """Returns why a cluster can never run a version; empty if it may."""
        return self.devices.refusal(self.wish(version), cluster)

    def _fitting(self, engine: Engine, wish: EngineWish) -> int:
        """The GPUs of an engine whose serving asks for none; 0 for what is usual."""
        if wish.kind not in DIVIDE and not wish.accelerator:
            return 0
        cluster = self.view.clusters.get(engine.cluster_id)
        if cluster is None or not (wish.accelerator or self.devices.rooms(wish, cluster).rooms):
            # What was chosen stays, also while the cluster is away.
            return engine.gpus
        now = engine.gpus if engine.id in self._ids else None
        return self.devices.gpus(wish, cluster, now)

    def is_full(self, cluster: clusters_pb2.Cluster) -> bool:
        """Returns True if a cluster has no place for another engine."""
        return self.load[cluster.id] >= cluster.capacity.engine_slots

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

    def complain(self, version: str, error: str) -> None:
        """Says why a version has fewer engines than it should have, once that has lasted."""
        self.lacking.add(version)
        for want in self.wants[version]:
            if self.now - want.since > PATIENCE_SECONDS and want.error != error:
                self.changes.errors.append((want, error))
