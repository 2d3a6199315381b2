"""Clusters as placement sees them: what each has, and what of it a project may use. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from windlass.api.clusters.v1 import clusters_pb2 as pb
from windlass.jobs.domain.job import Job, ProjectPlacement
from windlass.kubernetes.quota_kinds import in_kinds, kind_of
from windlass.residency.rule import admits

KUBERNETES = "kubernetes"
# The role of a cluster that takes jobs.
JOBS = "jobs"

# Amounts by kind (`gpus`, `cpu`, `memory`), in Kueue's units: CPUs in thousandths, bytes.
Amounts = Mapping[str, int]


def asked_by(job: Job) -> dict[str, int]:
    """The amounts that all nodes of an attempt take, without those left to the platform."""
    each = job.spec.resources
    amounts = in_kinds(each.gpus, each.cpus, each.memory_bytes)
    return {kind: amount * job.nodes for kind, amount in amounts.items() if amount}


@dataclass(frozen=True, slots=True, kw_only=True)
class FlavorQuota:
    """Quota of one resource in one flavor: what the queue could ever hold, and what is free."""

    resource: str
    attainable: int
    available: int

    @property
    def kind(self) -> str:
        """`gpus` for whatever counts devices, else the resource's own name."""
        return kind_of(self.resource)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterQueueState:
    """One of Kueue's ClusterQueues, as the cluster's agent saw it last."""

    name: str
    quotas: tuple[FlavorQuota, ...] = ()
    pending: int = 0
    active: bool = True
    message: str = ""

    def attainable(self, kind: str) -> int:
        """The most it could ever hold: a job's nodes are of one flavor, so the best one counts."""
        return max((one.attainable for one in self.quotas if one.kind == kind), default=0)

    def available(self, kind: str) -> int:
        """The part of that which is free now."""
        return max((one.available for one in self.quotas if one.kind == kind), default=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Assigned:
    """A project's place in a cluster, and what using it costs."""

    place: ProjectPlacement = field(default_factory=ProjectPlacement)
    # Millionths per accelerator-hour; 0 for nothing.
    price_micros: int = 0
    ready: bool = True
    # Why it is not ready.
    message: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulableCluster:
    """A live cluster."""

    id: str
    name: str = ""
    executor: str = "process"
    # Every project may use it, assigned or not.
    shared: bool = False
    # The label that its operator gave it.
    geography: str = ""
    slots: int = 0
    # Of one node where jobs are processes; 0 where nobody said.
    gpus: int = 0
    cpus: int = 0
    memory_bytes: int = 0
    # Of that, what engines hold.
    held: Amounts = field(default_factory=dict)
    backends: frozenset[str] = frozenset()
    # Packages that some configurations need, where its jobs run.
    libraries: frozenset[str] = frozenset()
    # By project.
    assigned: Mapping[str, Assigned] = field(default_factory=dict)
    queues: Mapping[str, ClusterQueueState] = field(default_factory=dict)

    @property
    def is_machine(self) -> bool:
        """True if jobs are processes there, of one node and without queues."""
        return self.executor != KUBERNETES

    def has(self, kind: str) -> int:
        """The machine's whole amount of what a job asks for; 0 where it was not reported."""
        return in_kinds(self.gpus, self.cpus, self.memory_bytes)[kind]

    def queue_of(self, project_id: str) -> ClusterQueueState | None:
        """The project's queue there; None while nothing is known of it."""
        assigned = self.assigned.get(project_id)
        return None if assigned is None else self.queues.get(assigned.place.cluster_queue)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSnapshot:
    """All clusters that live, and which projects are assigned to any, alive or not."""

    clusters: tuple[SchedulableCluster, ...] = ()
    # Clusters by project.
    assignments: Mapping[str, frozenset[str]] = field(default_factory=dict)
    # A cluster that all projects may use is away, and may have more than those that live.
    shared_away: bool = False
    # Of projects that have one.
    geographies: Mapping[str, str] = field(default_factory=dict)

    def visible(self, project_id: str) -> list[SchedulableCluster]:
        """The clusters that a project may use: of others it learns nothing."""
        geography = self.geography(project_id)
        return [
            cluster
            for cluster in self.clusters
            if (cluster.shared or project_id in cluster.assigned)
            and admits(cluster.geography, geography)
        ]

    def geography(self, project_id: str) -> str:
        """The geography where what a project has must stay; empty for anywhere."""
        return self.geographies.get(project_id, "")

    def lacks_one_of(self, project_id: str) -> bool:
        """Returns True if a cluster that the project may use does not answer."""
        live = {cluster.id for cluster in self.visible(project_id)}
        return self.shared_away or not self.assignments.get(project_id, frozenset()) <= live

    @property
    def backends(self) -> list[str]:
        """The backends that some cluster has."""
        return sorted(frozenset().union(*(one.backends for one in self.clusters)))

    @property
    def is_shared(self) -> bool:
        """True if some cluster needs no assignment."""
        return any(cluster.shared for cluster in self.clusters)

    @property
    def answering(self) -> list[str]:
        """Projects that some live cluster is assigned to."""
        return sorted(frozenset().union(*(one.assigned for one in self.clusters)))


def snapshot_of(answer: pb.ListCapacityResponse) -> ClusterSnapshot:
    """Returns the snapshot of what the clusters service answered."""
    queues = {
        one.cluster_id: {queue.name: _queue(queue) for queue in one.queues} for one in answer.queues
    }
    # One that is being removed takes no new job.
    assignments = [one for one in answer.assignments if not one.removing]
    assigned: dict[str, dict[str, Assigned]] = {}
    clusters: dict[str, set[str]] = {}
    for one in assignments:
        assigned.setdefault(one.cluster_id, {})[one.project_id] = _assigned(one)
        clusters.setdefault(one.project_id, set()).add(one.cluster_id)
    return ClusterSnapshot(
        clusters=tuple(
            _cluster(cluster, assigned.get(cluster.id, {}), queues.get(cluster.id, {}))
            for cluster in answer.clusters
            if cluster.live and JOBS in cluster.roles
        ),
        assignments={project: frozenset(ids) for project, ids in clusters.items()},
        shared_away=answer.shared_away,
        geographies={one.project_id: one.geography for one in answer.residencies},
    )


def _cluster(
    cluster: pb.Cluster, assigned: Mapping[str, Assigned], queues: Mapping[str, ClusterQueueState]
) -> SchedulableCluster:
    held = cluster.capacity.held_by_engines
    return SchedulableCluster(
        id=cluster.id,
        name=cluster.name,
        executor=cluster.executor,
        shared=cluster.shared,
        geography=cluster.geography,
        slots=cluster.capacity.slots,
        gpus=cluster.capacity.gpus,
        cpus=cluster.capacity.cpus,
        memory_bytes=cluster.capacity.memory_bytes,
        held=in_kinds(held.gpus, held.cpus, held.memory_bytes),
        backends=frozenset(cluster.capacity.backends),
        libraries=frozenset(cluster.capacity.libraries),
        assigned=assigned,
        queues=queues,
    )


def _assigned(message: pb.Assignment) -> Assigned:
    return Assigned(
        place=ProjectPlacement(
            namespace=message.namespace,
            queue=message.local_queue,
            cluster_queue=message.cluster_queue,
            priority_class=message.priority_class,
            node_selector=dict(message.node_selector),
        ),
        price_micros=message.price_micros,
        ready=message.ready,
        message=message.message,
    )


def _queue(message: pb.ClusterQueue) -> ClusterQueueState:
    return ClusterQueueState(
        name=message.name,
        quotas=tuple(_quotas(message.quotas)),
        pending=message.pending,
        active=message.active,
        message=message.message,
    )


def _quotas(quotas: Iterable[pb.ResourceQuota]) -> Iterable[FlavorQuota]:
    for quota in quotas:
        yield FlavorQuota(
            resource=quota.resource, attainable=quota.attainable, available=quota.available
        )
