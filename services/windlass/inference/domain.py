"""Engines that should run, models that are wanted, and the bounds; pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from windlass.api.clusters.v1 import clusters_pb2

RUNNING = "running"
DELETED = "deleted"
# How long a model counts as in use after it was wanted last.
IN_USE_SECONDS = 60.0
# An engine that was wanted more recently is not evicted for another.
EVICTABLE_SECONDS = 15.0
# Nobody waits longer than this for an engine to start; a later want begins anew.
AWAITED_SECONDS = 180.0
# A want waits this long for a cluster before its route says why; longer than an eviction takes.
PATIENCE_SECONDS = 20.0
RETRY_SECONDS = 5.0
RETRY_SECONDS_MOST = 300.0
# A want whose model is unknown: the watch of models may lag behind the want.
UNKNOWN_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class Name:
    """A model that can be served: a name of a project (empty: of all) and its version."""

    model: str
    project_id: str
    organization_id: str
    version_id: str
    # The version of complete weights that an engine of it runs.
    engine_version_id: str
    # The project that has it, where `project_id` was granted its use.
    owner_id: str = ""
    # It answers /v1/score, and nothing else.
    scores: bool = False

    @property
    def home(self) -> str:
        """The project to look it up in, whose name it stays when a grant ends."""
        return self.owner_id or self.project_id

    @property
    def is_adapter(self) -> bool:
        """Whether it needs to be loaded into an engine of another version."""
        return self.version_id != self.engine_version_id


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
    failures: int = 0
    failed_at: float = 0.0
    retry_at: float = 0.0
    error: str = ""


@dataclass(frozen=True, slots=True)
class Want:
    """A version that somebody wants served."""

    version_id: str
    engine_version_id: str
    used_at: float
    since: float
    error: str = ""


@dataclass(frozen=True, slots=True)
class Policy:
    """The operator's bounds."""

    engine: str
    max_engines: int
    max_adapters: int
    idle_seconds: float
    # URLs older than this are renewed for an engine that may still need them.
    url_seconds: float


@dataclass(frozen=True, slots=True)
class Rows:
    """What the database holds, and its clock."""

    now: float
    engines: Sequence[Engine]
    wants: Sequence[Want]


@dataclass(frozen=True, slots=True)
class View:
    """What the other services say: names by (project, model), statuses by workload, clusters."""

    names: Mapping[tuple[str, str], Name]
    statuses: Mapping[str, clusters_pb2.WorkloadStatus]
    clusters: Mapping[str, clusters_pb2.Cluster]

    def status(self, engine: Engine) -> clusters_pb2.WorkloadStatus:
        """What an engine is; an empty status while nobody said."""
        return self.statuses.get(engine.id) or clusters_pb2.WorkloadStatus()

    def answers(self, engine: Engine) -> bool:
        """Whether requests can be sent to it."""
        status = self.status(engine)
        return (
            engine.desired == RUNNING
            and engine.cluster_id in self.clusters
            and status.phase == clusters_pb2.PHASE_RUNNING
            and bool(status.endpoint)
        )
