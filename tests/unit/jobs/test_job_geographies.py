"""Jobs of projects whose data stays somewhere go nowhere else."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from windlass.api.clusters.v1 import clusters_pb2 as pb
from windlass.api.users.v1.users_pb2 import Residency
from windlass.jobs.domain import transitions
from windlass.jobs.domain.job import Job, JobState, Plan, Spec
from windlass.jobs.scheduling.choosing import PlacementRequest, choose
from windlass.jobs.scheduling.cluster_snapshot import ClusterSnapshot, snapshot_of
from windlass.jobs.scheduling.placement import decide
from windlass.jobs.scheduling.runtimes import runtimes_of
from windlass.jobs.scheduling.scoring import Load
from windlass.jobs_api.extension import Resources

LABELS = st.sampled_from(["", "US", "EU", "JP"])


def a_job(project: str) -> Job:
    spec = Spec(
        model="tiny", model_version_id="v", model_bytes=1, training_file="f", resources=Resources()
    )
    return Job(
        id="ftjob-1", organization_id="org-1", project_id=project, spec=spec, created_at_ms=1,
        model_name="ft:tiny", state=JobState.QUEUED,
        plan=Plan(framework="trl", schema_version=1, config={}),
    )  # fmt: skip


def seen(
    labels: list[str], geography: str, *, assigned: list[bool] | None = None
) -> ClusterSnapshot:
    """Clusters of these labels, each shared or assigned to the project."""
    assigned = assigned or [False] * len(labels)
    capacity = pb.Capacity(slots=2, backends=["trl"])
    answer = pb.ListCapacityResponse(
        clusters=[
            pb.Cluster(
                id=f"c{at}", name=f"c{at}", live=True, roles=["jobs"], geography=label,
                executor="kubernetes" if only else "process", shared=not only, capacity=capacity,
            )
            for at, (label, only) in enumerate(zip(labels, assigned, strict=True))
        ],
        assignments=[
            pb.Assignment(cluster_id=f"c{at}", project_id="proj", ready=True)
            for at, only in enumerate(assigned)
            if only
        ],
        residencies=[Residency(project_id="proj", geography=geography)] if geography else [],
    )  # fmt: skip
    return snapshot_of(answer)


@given(st.lists(st.tuples(LABELS, st.booleans()), max_size=5), LABELS)
def test_a_job_is_placed_in_its_geography_or_waits(
    clusters: list[tuple[str, bool]], geography: str
) -> None:
    labels, assigned = [one for one, _ in clusters], [only for _, only in clusters]
    snapshot = seen(labels, geography, assigned=assigned)
    _, change = decide(a_job("proj"), snapshot, Load(), 1)
    able = [f"c{at}" for at, label in enumerate(labels) if geography in ("", label)]
    assert bool(change.job.cluster_id) == bool(able)
    assert change.job.cluster_id in ("", *able)
    request = PlacementRequest(project_id="proj", resources=Resources())
    assert choose(request, snapshot, Load()).cluster_id in ("", *able)
    offering = {one.id for each in runtimes_of(snapshot, "proj") for one in each.clusters}
    assert offering <= set(able)
    # Of others nothing changes.
    _, other = decide(a_job("proj_b"), snapshot, Load(), 1)
    assert bool(other.job.cluster_id) == (False in assigned)


def test_a_job_says_which_label_it_waits_for() -> None:
    _, change = decide(a_job("proj"), seen(["US", ""], "EU"), Load(), 1)
    reason = change.job.queue.reason
    assert reason == "No live cluster that the project may use is labelled EU"


def test_a_job_whose_cluster_is_elsewhere_now_begins_anew_however_often() -> None:
    job = replace(
        a_job("proj"), state=JobState.RUNNING, cluster_id="c0", workload_cluster="c0", attempt=1
    )
    for failures in (0, 1):
        before = replace(job, failures=failures)
        after = transitions.displaced(before, "It moved.", now=1, max_attempts=2).job
        assert (after.state, after.cluster_id) == (JobState.QUEUED, "")
        assert after.failures == failures


def test_one_that_was_to_be_cancelled_is() -> None:
    job = replace(a_job("proj"), state=JobState.CANCELLING, cluster_id="c0", workload_cluster="c0")
    after = transitions.displaced(job, "It moved.", now=1, max_attempts=1).job
    assert after.state is JobState.CANCELLED
