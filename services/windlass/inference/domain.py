"""Engines that should run, models that are wanted, and the bounds; pure."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from windlass.api.clusters.v1 import clusters_pb2
from windlass.bounds import NORMAL_PRIORITY, TARGET_CACHE
from windlass.core.ids import EVERYONE
from windlass.engine_arguments import UNCHOSEN, EngineArguments, completed, of_files
from windlass.inference.stacks.stack import Stack, is_adopted
from windlass.modelfiles.adapter_traits import AdapterTraits
from windlass.modelfiles.footprint import Footprint
from windlass.modelfiles.formats import UNKNOWN, Formats
from windlass.modelfiles.quantization import Quantization
from windlass.residency.rule import admits
from windlass.serving_schedules import ScheduleWindow, scheduled
from windlass.workload_phases import is_possible

RUNNING = "running"
DELETED = "deleted"
# The role of a cluster that takes engines.
ENGINES = "engines"
# How long a model counts as in use after it was wanted last.
IN_USE_SECONDS = 60.0
# An engine that was wanted more recently is not evicted for another.
EVICTABLE_SECONDS = 15.0
# Nobody waits longer than this for an engine to start; a later want begins anew.
AWAITED_SECONDS = 180.0
# A gateway that holds requests for a model wants it again sooner than this.
WAITED_SECONDS = 30.0
# A want waits this long for a cluster before its route says why; longer than an eviction takes.
PATIENCE_SECONDS = 20.0
# A project without an engine waits so long before one with several has to yield a busy one.
FAIR_SECONDS = 10.0
RETRY_SECONDS = 5.0
MAX_RETRY_SECONDS = 300.0
# A want whose model is unknown: the watch of models may lag behind the want.
UNKNOWN_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class Name:
    """A version that can be served, and its name in its project (empty: of all projects)."""

    model: str
    project_id: str
    organization_id: str
    version_id: str
    # The version of complete weights that an engine of it runs.
    engine_version_id: str
    # What it takes of devices' memory, where that is known.
    footprint: Footprint | None = None
    # Of its weights, where they have one.
    quantization: Quantization | None = None
    # Of its tool calls and its reasoning.
    formats: Formats = UNKNOWN
    # `embed` or `score`, as engines have it; empty for one that generates.
    task: str = ""
    # The preset of its family, and the arguments of that by kind of engine; empty for none.
    preset: str = ""
    preset_arguments: tuple[tuple[str, EngineArguments], ...] = ()
    # The serving stack that has it, and the stack's name of it; empty for models of ours.
    stack: str = ""
    upstream: str = ""
    # Of an adapter: what it asks of an engine, where that is known, and whether there are complete
    # weights of it too.
    adapter: AdapterTraits | None = None
    is_merged: bool = False
    # Of an adapter that has engines of its own, by its merged copy or dedicated: the version of its
    # base; else empty.
    base_version_id: str = ""
    # Of those, one whose engines run its base, and load it alone.
    is_dedicated: bool = False
    # Why engines as its base's serving wants them do not load it, and no copy answers for it.
    refused: str = ""

    @property
    def is_copy(self) -> bool:
        """True for an adapter whose merged copy is served."""
        return bool(self.base_version_id) and not self.is_dedicated

    @property
    def files_version_id(self) -> str:
        """The version of the complete weights that its engines run, where that is known."""
        return self.base_version_id if self.is_dedicated else self.engine_version_id

    @property
    def settings_version_id(self) -> str:
        """The version whose serving says how its engines run."""
        return self.base_version_id or self.engine_version_id

    @property
    def other_engine_version_id(self) -> str:
        """The version of engines that may answer for it yet: that of before a change of settings.

        Empty for none.
        """
        return self.base_version_id or (self.version_id if self.is_adapter else "")

    def derived(self, kind: str) -> EngineArguments:
        """The arguments that engines of a kind have where its serving does not set them."""
        preset = dict(self.preset_arguments).get(kind, UNCHOSEN)
        return completed(preset, of_files(kind, self.formats, self.task))

    @property
    def weight_bytes(self) -> int:
        """Bytes of its weights; 0 where they are not known."""
        return self.footprint.weight_bytes if self.footprint else 0

    @property
    def is_adapter(self) -> bool:
        """True if it needs to be loaded into an engine of another version."""
        return self.version_id != self.engine_version_id


def weights_of(names: Mapping[str, Name], version: str) -> Name:
    """The name of the weights that engines of a known version run; its own if that is unknown."""
    name = names[version]
    return names.get(name.files_version_id, name)


@dataclass(frozen=True, slots=True)
class Engine:
    """One engine as it should be. Its id is its workload's; times are Unix seconds, 0 for never."""

    id: str
    version_id: str
    model: str
    project_id: str
    organization_id: str
    cluster_id: str
    engine: str
    desired: str
    generation: int
    # The generation that the cluster was told last.
    put_generation: int
    # Versions of the adapters to load, the most needed first.
    adapters: tuple[str, ...]
    created_at: float
    urls_at: float
    # Its number among the engines of its version, from 0.
    replica: int = 0
    arguments: EngineArguments = UNCHOSEN
    # GPUs of each of its nodes, and how many nodes those are, 0 for one.
    gpus: int = 0
    nodes: int = 0
    # The accelerator that it runs on, empty for any; the memory of each node, 0 for what is usual.
    accelerator: str = ""
    memory_bytes: int = 0
    priority: str = NORMAL_PRIORITY
    # Of the model that guesses tokens for it; empty for none.
    draft_version_id: str = ""
    # Whether it was started so that it can sleep, and whether it should sleep now.
    sleeps: bool = False
    asleep: bool = False
    # How it may be trained in its own memory; empty: not.
    training: str = ""
    # `tinker://RUN` of the run whose weights it takes in place, and the newest version that its
    # cluster was told of, 0 for none; empty: it has its model's own.
    follow: str = ""
    followed_version: int = 0
    failures: int = 0
    failed_at: float = 0.0
    retry_at: float = 0.0
    error: str = ""
    # Why it is in its cluster, in words.
    placement_reason: str = ""

    @property
    def is_adopted(self) -> bool:
        """True if somebody else runs it: it takes no place in its cluster, and of no quota."""
        return is_adopted(self.engine)

    @property
    def is_dedicated(self) -> bool:
        """True if it runs the base of its version, an adapter, and serves that alone."""
        return self.version_id in self.adapters


@dataclass(frozen=True, slots=True)
class Serving:
    """Settings of how a model is served; times are Unix seconds."""

    project_id: str
    model: str
    organization_id: str
    version_id: str
    engine_version_id: str
    # Engines that run whether or not somebody asks.
    min_replicas: int
    updated_at: float
    # How its engines run; an empty kind is the installation's. Empty for an adapter.
    engine: str = ""
    arguments: EngineArguments = UNCHOSEN
    gpus: int = 0
    # Nodes that each engine runs on together; 0 for one.
    nodes: int = 0
    accelerator: str = ""
    memory_bytes: int = 0
    # Against other servings.
    priority: str = NORMAL_PRIORITY
    # What the arguments' `draft_model` was when they were set; empty for none.
    draft_version_id: str = ""
    # Engines that load may make of it, 0 for no more than the least; and the open requests that
    # each should have, 0 for the usual number.
    max_replicas: int = 0
    target_requests: int = 0
    # Percent of each one's cache that may be in use before there are more; 0: however much is.
    target_cache: int = TARGET_CACHE
    # Percent of its GPUs' time likewise; 0: all of it.
    target_gpu: int = 0
    # Seconds that requests may wait before there are more engines; 0: however long.
    target_wait_seconds: int = 0
    # Windows of time with more engines than the least.
    schedule: tuple[ScheduleWindow, ...] = ()
    # Without requests, before what nobody keeps running ends; 0 for the installation's.
    idle_seconds: int = 0
    # Without requests, before its engines sleep; 0: they do not.
    sleep_seconds: int = 0
    # Ids of the clusters where its engines may run, with their weights; none for any.
    clusters: tuple[tuple[str, int], ...] = ()
    # Of an adapter: it has engines of its own, which serve it alone.
    dedicated: bool = False
    # How its engine may be trained in its own memory; empty: not.
    training: str = ""
    # `tinker://RUN`: its engines take the run's weights in place; empty: none.
    follow: str = ""
    # Why fewer engines run.
    error: str = ""

    @property
    def scales(self) -> bool:
        """True if load decides how many engines run."""
        return self.max_replicas > max(1, self.min_replicas)

    def weight(self, cluster_id: str) -> int:
        """The share of its engines that a cluster should have; 0: none may run there."""
        return dict(self.clusters).get(cluster_id, 0) if self.clusters else 1

    def by_name(self, names: Mapping[str, Name]) -> "Serving":
        """The serving with the version of the engines that answer for its model now."""
        name = names.get(self.version_id)
        return replace(self, engine_version_id=name.engine_version_id) if name else self

    def least(self, now: float) -> int:
        """The engines that run at a time, in Unix seconds, whether or not somebody asks."""
        return max(self.min_replicas, scheduled(self.schedule, now))

    @property
    def peak(self) -> int:
        """The engines that run at most whether or not somebody asks."""
        return max(self.min_replicas, *(one.replicas for one in self.schedule), 0)


@dataclass(frozen=True, slots=True)
class WantedVersion:
    """A version that somebody wants served."""

    version_id: str
    engine_version_id: str
    used_at: float
    since: float
    error: str = ""
    # What wants it, where no request does.
    serving: Serving | None = None


@dataclass(frozen=True, slots=True)
class InferencePolicy:
    """The operator's bounds."""

    engine: str
    max_engines: int
    max_adapters: int
    idle_seconds: float
    # URLs older than this are renewed for an engine that may still need them.
    url_seconds: float
    # How long less load lasts before fewer engines run.
    scale_down_seconds: float = 300.0


@dataclass(frozen=True, slots=True)
class GatewayLine:
    """Requests that wait at all gateways for busy engines, and how long the first of them has."""

    requests: int = 0
    seconds: float = 0.0
    # Beside them, those that let others go first.
    background: int = 0


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows of the database, and its clock."""

    now: float
    engines: Sequence[Engine]
    wants: Sequence[WantedVersion]
    servings: Sequence[Serving] = ()
    # How many engines a project and an organization may have at once, by id; by `project` and
    # `organization` where none was set; 0 or nothing: any number.
    quotas: Mapping[str, int] = field(default_factory=dict)
    # Requests that are open or held at gateways, by the version of the engines that answer.
    loads: Mapping[str, int] = field(default_factory=dict)
    # Of these requests, those that wait for busy engines.
    lines: Mapping[str, GatewayLine] = field(default_factory=dict)
    # Requests that are open or held at gateways, by the version of the adapter that answers.
    adapter_loads: Mapping[str, int] = field(default_factory=dict)
    # Serving stacks by name.
    stacks: Mapping[str, Stack] = field(default_factory=dict)
    # Clusters and versions whose files were brought there before anyone asked.
    prefetched: Collection[tuple[str, str]] = ()
    # Versions whose engines are trained, or have learned what no checkpoint has.
    trained: Collection[str] = ()

    @property
    def running(self) -> list[Engine]:
        """The engines that should run."""
        return [engine for engine in self.engines if engine.desired == RUNNING]

    def visible(self, project_id: str) -> dict[str, Serving]:
        """Servings that a project sees, by name; its own model hides one for everyone."""
        seen = [one for one in self.servings if one.project_id in ("", project_id)]
        return {one.model: one for one in sorted(seen, key=lambda one: one.project_id)}

    @property
    def version_ids(self) -> set[str]:
        """Every version that is spoken of."""
        asked: list[WantedVersion | Serving] = [*self.wants, *self.servings]
        wanted = {one for each in asked for one in (each.version_id, each.engine_version_id)}
        served = {one for engine in self.engines for one in (engine.version_id, *engine.adapters)}
        return wanted | served

    @property
    def draft_ids(self) -> set[str]:
        """Every version that guesses for another; nobody has to want it."""
        every: list[Engine | Serving] = [*self.engines, *self.servings]
        return {one.draft_version_id for one in every} - {""}


# Of a view without an engine.
NOTHING = Rows(now=0.0, engines=(), wants=())


@dataclass(frozen=True, slots=True)
class View:
    """State of the other services: names by version, statuses by workload, clusters."""

    names: Mapping[str, Name]
    statuses: Mapping[str, clusters_pb2.WorkloadStatus]
    clusters: Mapping[str, clusters_pb2.Cluster]
    # Assignments by cluster and project.
    assigned: Mapping[str, Mapping[str, clusters_pb2.Assignment]] = field(default_factory=dict)
    # Clusters with a tunnel.
    tunnels: Collection[str] = ()
    # Kueue's queues by cluster and name, where there are any.
    queues: Mapping[str, Mapping[str, clusters_pb2.ClusterQueue]] = field(default_factory=dict)
    # Of projects that have one.
    geographies: Mapping[str, str] = field(default_factory=dict)
    # The newest versions that projects may follow, 0 for none, by project and `tinker://RUN`.
    followed: Mapping[tuple[str, str], int] = field(default_factory=dict)

    def status(self, engine: Engine) -> clusters_pb2.WorkloadStatus:
        """The status of an engine; an empty one before the first report."""
        return self.statuses.get(engine.id) or clusters_pb2.WorkloadStatus()

    def load(self, engine: Engine) -> clusters_pb2.ServingLoad:
        """The load of an engine that runs; an empty one where its agent says none that can be."""
        status = self.status(engine)
        known = status.phase == clusters_pb2.PHASE_RUNNING and is_possible(status.load)
        return status.load if known else clusters_pb2.ServingLoad()

    def has_loaded(self, engine: Engine, version: str) -> bool:
        """Returns True if an engine says that it has loaded an adapter."""
        loaded = self.status(engine).adapters
        return any(one.version_id == version and not one.error for one in loaded)

    def reaches(self, cluster_id: str) -> bool:
        """Returns True if a gateway finds a way to engines there."""
        cluster = self.clusters.get(cluster_id)
        if cluster is None or cluster.capacity.draining:
            return False
        return cluster.embedded or bool(cluster.addresses) or cluster_id in self.tunnels

    def permits(self, cluster_id: str, project_id: str) -> bool:
        """Returns True if an engine there may have a project's weights; empty for those of all."""
        cluster = self.clusters.get(cluster_id)
        if cluster is None or ENGINES not in cluster.roles:
            return False
        if not admits(cluster.geography, self.geographies.get(project_id, "")):
            return False
        return cluster.shared or self.assignment(cluster_id, project_id) is not None

    def assignment(self, cluster_id: str, project_id: str) -> clusters_pb2.Assignment | None:
        """The place of a project in a cluster; an empty one stands for models for everyone."""
        return self.assigned.get(cluster_id, {}).get(project_id or EVERYONE)

    def has_place(self, cluster_id: str, project_id: str) -> bool:
        """Returns True if what a project's engines need there is set up, such as a namespace."""
        found = self.assignment(cluster_id, project_id)
        return self.clusters[cluster_id].shared if found is None else found.ready

    def answers(self, engine: Engine, project_id: str) -> bool:
        """Returns True if a project's requests can be sent to it."""
        status = self.status(engine)
        return (
            engine.desired == RUNNING
            and not engine.asleep
            and self.reaches(engine.cluster_id)
            and self.permits(engine.cluster_id, project_id)
            and status.phase == clusters_pb2.PHASE_RUNNING
            and bool(status.endpoint)
        )


def why_none_sleeps(engine: str, clusters: Iterable[clusters_pb2.Cluster]) -> str:
    """Returns why engines of a kind sleep in none of the clusters that have it; empty otherwise."""
    holding = [one.capacity for one in clusters if engine in one.capacity.engines]
    if not holding or any(engine in one.sleeping_engines for one in holding):
        return ""
    return (
        f"No live cluster lets engines of the kind {engine!r} sleep: machines do, vLLM's with a "
        "GPU alone, and Kubernetes does not."
    )


def why_none_is_trained(engine: str, clusters: Iterable[clusters_pb2.Cluster]) -> str:
    """Returns why engines of a kind are trained in none of the clusters; empty otherwise."""
    if any(engine in one.capacity.training_engines for one in clusters):
        return ""
    return (
        f"No live cluster can train engines of the kind {engine!r}: machines can, where vLLM's "
        "environment has windlass-vllm, and Kubernetes cannot."
    )


def engine_bound(quotas: Mapping[str, int], scope: str, identifier: str) -> int:
    """The engines that a project or an organization may have; 0 for any number, or no id."""
    return quotas.get(identifier, quotas.get(scope, 0)) if identifier else 0


def kept_engines(servings: Sequence[Serving]) -> int:
    """The number of engines that these keep running together."""
    replicas = Counter[str]()
    for one in servings:
        version = one.engine_version_id
        replicas[version] = max(replicas[version], one.peak)
    return replicas.total()
