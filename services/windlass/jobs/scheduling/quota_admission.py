"""Refusing at once what no cluster of a project can ever hold or run. Pure."""

from windlass.core.errors import InvalidArgument
from windlass.jobs.domain.job import Job
from windlass.jobs.scheduling.cluster_snapshot import (
    ClusterSnapshot,
    SchedulableCluster,
    asked_by,
)
from windlass.jobs.scheduling.scoring import excess, lacks
from windlass.kubernetes.quota_kinds import spelled


def require_quota(job: Job, snapshot: ClusterSnapshot | None) -> None:
    """Raises InvalidArgument `exceeds_quota` or `exceeds_machines`, with the numbers.

    Only what is known for sure refuses: every cluster of the project lives, its machines and
    queues are known, and none could hold the job if it were empty.
    """
    if snapshot is None or _is_one_away(job, snapshot):
        return
    if message := misfit(job, snapshot):
        of_machines = all(one.is_machine for one in snapshot.visible(job.project_id))
        raise InvalidArgument(
            message,
            reason="exceeds_machines" if of_machines else "exceeds_quota",
            param="windlass.resources",
        )


def require_libraries(job: Job, snapshot: ClusterSnapshot | None) -> None:
    """Raises InvalidArgument `library_not_installed` for a setting that needs a package which no
    cluster of the project has. As for quotas, every cluster lives.
    """
    if snapshot is None or _is_one_away(job, snapshot):
        return
    if (found := _missing(job, snapshot)) is not None:
        setting, message = found
        param = "windlass.document" if job.spec.document else f"windlass.config.{setting}"
        raise InvalidArgument(message, reason="library_not_installed", param=param)


def misfit(job: Job, snapshot: ClusterSnapshot | None) -> str:
    """Returns why no live cluster of the project could hold the job if it were empty; empty if
    one could, or may, or if there is none.
    """
    if snapshot is not None and (missing := _missing(job, snapshot)) is not None:
        return missing[1]
    visible = snapshot.visible(job.project_id) if snapshot else []
    hindrances = [_never(job, cluster) for cluster in visible]
    if not visible or not all(hindrances):
        return ""
    asked = " and ".join(spelled(kind, amount) for kind, amount in asked_by(job).items())
    nodes = f" on {job.nodes} nodes" if job.nodes > 1 else ""
    what = f"a job that asks for {asked or 'nothing'}{nodes}"
    of_machines = all(cluster.is_machine for cluster in visible)
    said = "No machine is large enough" if of_machines else "The project's quota is too small"
    return f"{said} for {what}. " + " ".join(
        f"Cluster {one.name}: {why}." for one, why in zip(visible, hindrances, strict=True)
    )


def _missing(job: Job, snapshot: ClusterSnapshot) -> tuple[str, str] | None:
    """A setting of the job whose package no live cluster with its backend has, and a sentence."""
    clusters = [one for one in snapshot.visible(job.project_id) if job.spec.backend in one.backends]
    for library, setting in job.libraries.items():
        if clusters and not any(library in one.libraries for one in clusters):
            return setting, (
                f"{setting} needs {library}, which is installed on no cluster of the project. "
                "Leave the setting out, or ask an operator to install it where jobs run."
            )
    return None


def _is_one_away(job: Job, snapshot: ClusterSnapshot) -> bool:
    assigned = snapshot.assignments.get(job.project_id, frozenset())
    live = {cluster.id for cluster in snapshot.visible(job.project_id)}
    return snapshot.shared_away or bool(assigned - live)


def _never(job: Job, cluster: SchedulableCluster) -> str:
    """Returns why the cluster could not hold the job if it were empty; empty if it could, or
    may.
    """
    if cluster.is_machine and not cluster.slots and not cluster.cpus:
        # Its agent has not said yet what it has.
        return ""
    if cluster.is_machine:
        lacking = lacks(job, cluster)
        return f"it has {lacking}" if lacking else ""
    queue = cluster.queue_of(job.project_id)
    return excess(asked_by(job), queue) if queue else ""
