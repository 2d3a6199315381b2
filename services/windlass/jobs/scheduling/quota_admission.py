"""Refusing at once what a project's quota can never hold. Pure."""

from windlass.core.errors import InvalidArgument
from windlass.jobs.domain.job import Job
from windlass.jobs.scheduling.cluster_snapshot import (
    ClusterSnapshot,
    SchedulableCluster,
    asked_by,
    spelled,
)
from windlass.jobs.scheduling.scoring import excess, lacks


def require_quota(job: Job, snapshot: ClusterSnapshot | None) -> None:
    """Raises InvalidArgument `exceeds_quota`, with the numbers.

    Only what is known for sure refuses: every cluster of the project lives, every queue of
    it is known, and none could hold the job if it were empty.
    """
    clusters = snapshot.assignments.get(job.project_id) if snapshot else None
    if snapshot is None or not clusters:
        return
    visible = snapshot.visible(job.project_id)
    if clusters - {cluster.id for cluster in visible}:
        return
    hindrances = [_never(job, cluster) for cluster in visible]
    if not all(hindrances):
        return
    asked = " and ".join(spelled(kind, amount) for kind, amount in asked_by(job).items())
    nodes = f" on {job.nodes} nodes" if job.nodes > 1 else ""
    raise InvalidArgument(
        f"The project's quota is too small for a job that asks for {asked}{nodes}. "
        + " ".join(
            f"Cluster {one.name}: {why}." for one, why in zip(visible, hindrances, strict=True)
        ),
        reason="exceeds_quota",
        param="windlass.resources",
    )


def _never(job: Job, cluster: SchedulableCluster) -> str:
    """Returns why the cluster could not hold the job if it were empty; empty if it could, or
    may.
    """
    if cluster.is_machine:
        lacking = lacks(job, cluster)
        return f"it has {lacking}" if lacking else ""
    queue = cluster.queue_of(job.project_id)
    return excess(asked_by(job), queue) if queue else ""
