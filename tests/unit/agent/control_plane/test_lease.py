"""Lease on jobs: when an agent without contact ends them, and what it may run again."""

from pathlib import Path

import pytest

from windlass.api.clusters.v1 import clusters_pb2 as pb
from windlass_agent.control_plane.lease import ControlPlaneLease, LeaseState

RUNNING, STOPPED, DELETED = (
    pb.DESIRED_STATE_RUNNING,
    pb.DESIRED_STATE_STOPPED,
    pb.DESIRED_STATE_DELETED,
)


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def lease(clock: Clock, tmp_path: Path) -> ControlPlaneLease:
    made = ControlPlaneLease(tmp_path / "contact.json", clock=clock)
    made.limit(60)
    return made


def job(
    name: str = "job", *, generation: int = 3, desired: "pb.DesiredState.ValueType" = RUNNING
) -> pb.Workload:
    return pb.Workload(
        id=name, kind=pb.WORKLOAD_KIND_RUN_TO_COMPLETION, generation=generation, desired=desired,
        job=pb.JobWorkload(job_id=name, attempt=1),
    )  # fmt: skip


def engine(name: str = "engine") -> pb.Workload:
    return pb.Workload(
        id=name, kind=pb.WORKLOAD_KIND_LONG_RUNNING, generation=1, desired=RUNNING,
        engine=pb.EngineWorkload(),
    )  # fmt: skip


def status(
    workload: pb.Workload, phase: "pb.Phase.ValueType" = pb.PHASE_RUNNING
) -> pb.WorkloadStatus:
    return pb.WorkloadStatus(workload_id=workload.id, generation=workload.generation, phase=phase)


def suspend_jobs(lease: ControlPlaneLease, *workloads: pb.Workload) -> dict[str, int]:
    statuses = [status(one) for one in workloads]
    return {
        one.id: one.desired for one in lease.suspend_jobs(statuses, {w.id: w for w in workloads})
    }


def test_jobs_are_stopped_at_t_and_killed_at_half_of_it_more(
    lease: ControlPlaneLease, clock: Clock
) -> None:
    found = [(0, LeaseState.IN_TOUCH), (59.9, LeaseState.IN_TOUCH), (60, LeaseState.SILENT)]
    found += [(89.9, LeaseState.SILENT), (90, LeaseState.LOST), (10**6, LeaseState.LOST)]
    for silence, state in found:
        clock.now = 1000 + silence
        assert lease.state is state
        wanted = {LeaseState.SILENT: {"job": STOPPED}, LeaseState.LOST: {"job": DELETED}}
        assert suspend_jobs(lease, job(), engine()) == wanted.get(state, {})


def test_silence_counts_from_the_question_that_was_answered_last(
    lease: ControlPlaneLease, clock: Clock
) -> None:
    asked = lease.now()
    clock.now += 30
    lease.heard(asked)
    clock.now += 30
    waited = lease.state
    assert waited is LeaseState.SILENT
    lease.heard(lease.now())
    lease.heard(asked)
    assert lease.state is LeaseState.IN_TOUCH


def test_without_a_limit_silence_changes_nothing(clock: Clock) -> None:
    lease = ControlPlaneLease(clock=clock)
    clock.now += 10**9
    assert suspend_jobs(lease, job()) == {}


def test_a_heartbeat_may_get_lost_before_silence_means_anything(
    lease: ControlPlaneLease, clock: Clock
) -> None:
    assert lease.pace(5) == 5
    lease.limit(6)
    assert lease.pace(5) == 2
    assert ControlPlaneLease(clock=clock).pace(5) == 5


def test_what_has_ended_is_left_and_what_should_be_gone_stays_so(
    lease: ControlPlaneLease, clock: Clock
) -> None:
    clock.now += 60
    ended = status(job(), pb.PHASE_SUCCEEDED)
    assert lease.suspend_jobs([ended], {"job": job()}) == []
    assert suspend_jobs(lease, job(desired=DELETED)) == {"job": DELETED}


def test_an_adopted_job_of_which_nothing_is_known_is_stopped_by_its_id(
    lease: ControlPlaneLease, clock: Clock
) -> None:
    clock.now += 60
    (applied,) = lease.suspend_jobs([status(job())], {})
    assert applied.WhichOneof("spec") is None
    assert (applied.id, applied.generation, applied.desired) == ("job", 3, STOPPED)
    assert applied.kind == pb.WORKLOAD_KIND_RUN_TO_COMPLETION


def test_what_was_let_go_of_is_not_begun_again_until_something_newer_is_wanted(
    lease: ControlPlaneLease, clock: Clock
) -> None:
    clock.now += 60
    suspend_jobs(lease, job())
    lease.heard(clock.now)

    def mask_suspended(workload: pb.Workload, *, snapshot: bool = False) -> int:
        return lease.mask_suspended([workload], snapshot=snapshot)[0].desired

    assert mask_suspended(job(), snapshot=True) == STOPPED
    assert mask_suspended(job(desired=DELETED)) == DELETED
    assert mask_suspended(job("other"), snapshot=False) == RUNNING
    assert mask_suspended(job()) == STOPPED
    assert mask_suspended(job(generation=5)) == RUNNING
    assert mask_suspended(job()) == RUNNING, "what is newer ended the matter"


def test_a_snapshot_ends_the_matter_of_what_it_does_not_name(
    lease: ControlPlaneLease, clock: Clock
) -> None:
    clock.now += 60
    suspend_jobs(lease, job(), job("two"))
    assert lease.mask_suspended([job("two")], snapshot=True)[0].desired == STOPPED
    assert lease.mask_suspended([job()], snapshot=False)[0].desired == RUNNING


def test_a_restart_remembers_and_begins_to_count_anew(
    lease: ControlPlaneLease, clock: Clock, tmp_path: Path
) -> None:
    clock.now += 90
    suspend_jobs(lease, job())
    again = ControlPlaneLease(tmp_path / "contact.json", clock=clock)
    begun = again.state
    assert begun is LeaseState.IN_TOUCH
    assert again.mask_suspended([job()], snapshot=True)[0].desired == STOPPED
    clock.now += 60
    assert again.state is LeaseState.SILENT
    (tmp_path / "contact.json").write_text("{")
    assert ControlPlaneLease(tmp_path / "contact.json", clock=clock).state is LeaseState.IN_TOUCH
