"""Scoring of clusters for a job: points for each, and the reason in a sentence. Pure.

A cluster that can never hold the job does not fit. Of those that fit, the one with the
most points is chosen; of equals, the last by id. What points are given for:

| points     | from .. to | for                                                            |
|------------|------------|----------------------------------------------------------------|
| assignment |   0 .. 200 | the project is assigned to it; others are only its fallback     |
| headroom   |   0 .. 100 | room for the whole job now; for a part of it up to 40          |
| spread     |   0 ..  20 | room for more jobs like it, 4 more being worth half            |
| price      |   0 ..  30 | an accelerator-hour there, against the dearest that fits       |
| locality   |   0 ..  10 | it trained this base model in the last day: images are there   |
| queue      | -50 ..   0 | jobs that wait there already, 4 of them being worth half       |

So a cluster with room beats every cluster without, whatever it costs, unless many wait
there; and where all are full, the job queues where most room or the shortest queue is.
"""

from collections import Counter
from dataclasses import dataclass, field, replace

from windlass.jobs.domain.job import Job
from windlass.jobs.scheduling.cluster_snapshot import (
    Amounts,
    ClusterQueueState,
    ClusterSnapshot,
    SchedulableCluster,
    asked_by,
)
from windlass.kubernetes.quota_kinds import GPUS, spelled

ASSIGNMENT, HEADROOM, PART, SPREAD, PRICE, LOCALITY, QUEUE = 200, 100, 40, 20, 30, 10, 50
# Nothing known of the room neither speaks for a cluster nor against it.
UNKNOWN = 50
HALF = 4
# Room for how many such jobs, None when nobody knows; how many jobs wait; a sentence of it.
Free = tuple[float | None, int, str]
# The name of the backend follows.
NO_BACKEND = "No live cluster has the backend "
# Of a job that several clusters could not take, each for a reason of its own.
UNFIT = "No live cluster has the resources that the job needs"
# Of a project whose data stays somewhere; its geography follows.
NOWHERE_THERE = "No live cluster that the project may use is labelled "
NO_ANSWER = "None of the clusters assigned to this project is responding"


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """Verdict of placement on one cluster."""

    cluster_id: str
    cluster_name: str = ""
    chosen: bool = False
    fits: bool = False
    reason: str
    points: dict[str, float] = field(default_factory=dict)

    @property
    def total(self) -> float:
        """All points."""
        return sum(self.points.values())


@dataclass(slots=True)
class Waiting:
    """Jobs of ours in a queue that do not count as used there yet, and what they ask for."""

    count: int = 0
    amounts: Counter[str] = field(default_factory=Counter)


@dataclass(slots=True, kw_only=True)
class Load:
    """Load of the jobs on clusters; placement adds to it until the next refresh."""

    # Jobs that have not ended, by cluster.
    jobs: Counter[str] = field(default_factory=Counter)
    # By cluster and ClusterQueue.
    waiting: dict[tuple[str, str], Waiting] = field(default_factory=dict)
    # What jobs that have not ended ask of machines, by machine.
    taken: dict[str, Counter[str]] = field(default_factory=dict)
    # Clusters with the versions of base models that they trained in the last day.
    trained: frozenset[tuple[str, str]] = frozenset()

    def add(self, job: Job, cluster: SchedulableCluster) -> None:
        """Counts a job that was just placed."""
        self.jobs[cluster.id] += 1
        if cluster.is_machine:
            self.taken.setdefault(cluster.id, Counter()).update(asked_by(job))
        elif queue := cluster.queue_of(job.project_id):
            waiting = self.waiting.setdefault((cluster.id, queue.name), Waiting())
            waiting.count += 1
            waiting.amounts.update(asked_by(job))


def score(job: Job, snapshot: ClusterSnapshot, load: Load) -> list[Verdict]:
    """A verdict on every cluster that the job's project may use, the best first."""
    judged = [(one, _hindrance(job, one)) for one in snapshot.visible(job.project_id)]
    dearest = max((_price(job, one) for one, hindrance in judged if not hindrance), default=0)
    verdicts = [
        Verdict(cluster_id=one.id, cluster_name=one.name, reason=hindrance)
        if hindrance
        else _weigh(job, one, load, dearest)
        for one, hindrance in judged
    ]
    verdicts.sort(key=lambda one: (one.fits, one.total, one.cluster_id), reverse=True)
    if verdicts and verdicts[0].fits:
        verdicts[0] = replace(verdicts[0], chosen=True)
    return verdicts


def _hindrance(job: Job, cluster: SchedulableCluster) -> str:
    """Returns why the cluster cannot take the job now, and waiting there would not help; else
    empty.
    """
    if job.spec.backend not in cluster.backends:
        return f"It does not have the backend {job.spec.backend}"
    for library, setting in job.libraries.items():
        if library not in cluster.libraries:
            return f"It does not have {library}, which {setting} needs"
    if cluster.is_machine:
        lacking = lacks(job, cluster)
        return f"It has {lacking}" if lacking else ""
    assigned = cluster.assigned[job.project_id]
    if not assigned.ready:
        return (
            "It is not set up for this project yet: "
            f"{assigned.message or 'the agent is setting it up'}"
        )
    queue = cluster.queue_of(job.project_id)
    return excess(asked_by(job), queue) if queue else ""


def lacks(job: Job, machine: SchedulableCluster) -> str:
    """The machine's amount of a resource that the job asks more of; empty if it has enough."""
    if job.nodes > 1:
        return f"one node; the job asks for {job.nodes}"
    for kind, amount in asked_by(job).items():
        has = machine.has(kind)
        # A machine always has some of these: 0 is that its agent has not said.
        if amount > has and (has or kind == GPUS):
            return f"{spelled(kind, has)}; the job asks for {spelled(kind, amount)}"
    return ""


def excess(asked: Amounts, queue: ClusterQueueState) -> str:
    """The amount asked for beyond all that a queue could ever hold; empty when there is none."""
    for kind, amount in asked.items():
        if amount > (most := queue.attainable(kind)):
            return (
                f"Its queue {queue.name} holds {spelled(kind, most)} at most, "
                f"and the job asks for {spelled(kind, amount)}"
            )
    return ""


def _weigh(job: Job, cluster: SchedulableCluster, load: Load, dearest: int) -> Verdict:
    free = _machine(job, cluster, load) if cluster.is_machine else _quota(job, cluster, load)
    room, waiting, reason = free
    points = {
        "assignment": ASSIGNMENT if job.project_id in cluster.assigned else 0,
        "headroom": UNKNOWN if room is None else HEADROOM if room >= 1 else PART * room,
        "spread": _spread(room, load.jobs[cluster.id]),
        "price": PRICE * (1 - _price(job, cluster) / dearest) if dearest else 0,
        "locality": LOCALITY if (cluster.id, job.spec.model_version_id) in load.trained else 0,
        "queue": -QUEUE * waiting / (waiting + HALF),
    }
    return Verdict(
        cluster_id=cluster.id,
        cluster_name=cluster.name,
        fits=True,
        reason=reason,
        points={name: round(value, 1) for name, value in points.items() if value},
    )


def _price(job: Job, cluster: SchedulableCluster) -> int:
    assigned = cluster.assigned.get(job.project_id)
    return assigned.price_micros if assigned else 0


def _spread(room: float | None, jobs: int) -> float:
    if room is None:
        return SPREAD * HALF / (HALF + jobs)
    return SPREAD * room / (room + HALF)


def _machine(job: Job, cluster: SchedulableCluster, load: Load) -> Free:
    """The free capacity of a machine: slots, and its resources per slot."""
    slots = cluster.slots - load.jobs[cluster.id]
    if slots <= 0:
        return (
            0,
            -slots,
            f"Its {cluster.slots} slots are taken, and {-slots} jobs are waiting for one",
        )
    said = f"{slots} of its {cluster.slots} slots are free"
    free = _left(cluster, load)
    asked = {kind: amount for kind, amount in asked_by(job).items() if cluster.has(kind)}
    if not asked:
        return slots, 0, said
    kind = min(asked, key=lambda one: free[one] / asked[one])
    said = f"{said}, and {spelled(kind, free[kind])} of {spelled(kind, cluster.has(kind))}"
    return min(slots, free[kind] / asked[kind]), 0, said


def _left(machine: SchedulableCluster, load: Load) -> dict[str, int]:
    """The resources of a machine that neither engines nor jobs hold; jobs that wait there count
    too.
    """
    taken = load.taken.get(machine.id, Counter())
    kinds = (GPUS, "cpu", "memory")
    return {
        kind: max(0, machine.has(kind) - machine.held.get(kind, 0) - taken[kind]) for kind in kinds
    }


def _quota(job: Job, cluster: SchedulableCluster, load: Load) -> Free:
    """The free capacity of a cluster where Kueue admits jobs."""
    queue, asked = cluster.queue_of(job.project_id), asked_by(job)
    if queue is None:
        return None, 0, "The state of its queue is not known yet"
    ours = load.waiting.get((cluster.id, queue.name), Waiting())
    waiting = max(queue.pending, ours.count)
    if not queue.active:
        why = queue.message or "Kueue gave no reason"
        return 0, waiting, f"Its queue {queue.name} is not admitting workloads: {why}"
    if not asked:
        return None, waiting, f"{waiting} jobs wait in its queue {queue.name}"
    free = {kind: max(0, queue.available(kind) - ours.amounts[kind]) for kind in asked}
    kind = min(asked, key=lambda one: free[one] / asked[one])
    said = f"Of {spelled(kind, queue.attainable(kind))}, {spelled(kind, free[kind])} free"
    return free[kind] / asked[kind], waiting, f"{said} in its queue {queue.name}, {waiting} wait"
