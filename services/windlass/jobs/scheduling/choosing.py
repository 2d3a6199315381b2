"""Choice of a cluster for a workload other than a job, by the rules for jobs. Pure."""

from dataclasses import dataclass, replace

from windlass.jobs.domain.job import Job, Spec
from windlass.jobs.scheduling.cluster_snapshot import KUBERNETES, ClusterSnapshot
from windlass.jobs.scheduling.scoring import NO_ANSWER, UNFIT, Load, Verdict, score
from windlass.jobs_api.extension import Resources

NOWHERE = "No other cluster is assigned to this project"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementRequest:
    """A workload of a project, all its pods together, and where it must not go."""

    project_id: str
    resources: Resources
    except_cluster: str = ""


def choose(request: PlacementRequest, snapshot: ClusterSnapshot, load: Load) -> Verdict:
    """The verdict on the cluster that suits best, `fits` being false when none does."""
    there = [
        replace(one, backends=frozenset({""}))
        for one in snapshot.clusters
        if one.executor == KUBERNETES and one.id != request.except_cluster
    ]
    verdicts = score(_as_job(request), replace(snapshot, clusters=tuple(there)), load)
    if not verdicts:
        assigned = snapshot.assignments.get(request.project_id, frozenset())
        away = assigned - {request.except_cluster}
        return Verdict(cluster_id="", reason=NO_ANSWER if away else NOWHERE)
    if verdicts[0].fits or len(verdicts) == 1:
        return verdicts[0]
    return replace(verdicts[0], reason=UNFIT)


def _as_job(request: PlacementRequest) -> Job:
    """A job of one node that asks for the same, and needs no backend."""
    spec = Spec(
        model="", model_version_id="", model_bytes=0, training_file="", backend="",
        resources=request.resources,
    )  # fmt: skip
    return Job(
        id="", organization_id="", project_id=request.project_id, spec=spec, created_at_ms=0,
        model_name="",
    )  # fmt: skip
