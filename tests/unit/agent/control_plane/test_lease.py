"""When an agent that hears nothing lets go of its jobs, and what it may run again."""

from pathlib import Path

import pytest

from windlass.api.clusters.v1 import clusters_pb2 as pb
from windlass_agent.control_plane.lease import Contact, Standing

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
def contact(clock: Clock, tmp_path: Path) -> Contact:
    made = Contact(tmp_path / "contact.json", clock=clock)
    made.limit(60)
    return made


def job(name: str = "job", *, generation: int = 3, desired: "pb.DesiredState.ValueType" = RUNNING):
    return pb.Workload(
        id=name, kind=pb.WORKLOAD_KIND_RUN_TO_COMPLETION, generation=generation, desired=desired,
        job=pb.JobWorkload(job_id=name, attempt=1),
    )  # fmt: skip


def engine(name: str = "engine") -> pb.Workload:
    return pb.Workload(
        id=name, kind=pb.WORKLOAD_KIND_LONG_RUNNING, generation=1, desired=RUNNING,
        engine=pb.EngineWorkload(),
    )  # fmt: skip


def status(workload: pb.Workload, phase: "pb.Phase.ValueType" = pb.PHASE_RUNNING):
    return pb.WorkloadStatus(workload_id=workload.id, generation=workload.generation, phase=phase)


def let_go(contact: Contact, *workloads: pb.Workload) -> dict[str, int]:
    statuses = [status(one) for one in workloads]
    return {one.id: one.desired for one in contact.let_go(statuses, {w.id: w for w in workloads})}


def test_jobs_are_stopped_at_t_and_killed_at_half_of_it_more(contact, clock):
    found = [(0, Standing.IN_TOUCH), (59.9, Standing.IN_TOUCH), (60, Standing.SILENT)]
    found += [(89.9, Standing.SILENT), (90, Standing.LOST), (10**6, Standing.LOST)]
    for silence, standing in found:
        clock.now = 1000 + silence
        assert contact.standing is standing
        wanted = {Standing.SILENT: {"job": STOPPED}, Standing.LOST: {"job": DELETED}}
        assert let_go(contact, job(), engine()) == wanted.get(standing, {})


def test_silence_counts_from_the_question_that_was_answered_last(contact, clock):
    asked = contact.now()
    clock.now += 30
    contact.heard(asked)
    clock.now += 30
    assert contact.standing is Standing.SILENT
    contact.heard(contact.now())
    contact.heard(asked)
    assert contact.standing is Standing.IN_TOUCH


def test_without_a_limit_silence_changes_nothing(clock):
    contact = Contact(clock=clock)
    clock.now += 10**9
    assert let_go(contact, job()) == {}


def test_a_heartbeat_may_get_lost_before_silence_means_anything(contact, clock):
    assert contact.pace(5) == 5
    contact.limit(6)
    assert contact.pace(5) == 2
    assert Contact(clock=clock).pace(5) == 5


def test_what_has_ended_is_left_and_what_should_be_gone_stays_so(contact, clock):
    clock.now += 60
    ended = status(job(), pb.PHASE_SUCCEEDED)
    assert contact.let_go([ended], {"job": job()}) == []
    assert let_go(contact, job(desired=DELETED)) == {"job": DELETED}


def test_an_adopted_job_of_which_nothing_is_known_is_stopped_by_its_id(contact, clock):
    clock.now += 60
    (applied,) = contact.let_go([status(job())], {})
    assert applied.WhichOneof("spec") is None
    assert (applied.id, applied.generation, applied.desired) == ("job", 3, STOPPED)
    assert applied.kind == pb.WORKLOAD_KIND_RUN_TO_COMPLETION


def test_what_was_let_go_of_is_not_begun_again_until_something_newer_is_wanted(contact, clock):
    clock.now += 60
    let_go(contact, job())
    contact.heard(clock.now)

    def obeyed(workload: pb.Workload, *, snapshot: bool = False) -> int:
        return contact.obeyed([workload], snapshot=snapshot)[0].desired

    assert obeyed(job(), snapshot=True) == STOPPED
    assert obeyed(job(desired=DELETED)) == DELETED
    assert obeyed(job("other"), snapshot=False) == RUNNING
    assert obeyed(job()) == STOPPED
    assert obeyed(job(generation=5)) == RUNNING
    assert obeyed(job()) == RUNNING, "what is newer ended the matter"


def test_a_snapshot_ends_the_matter_of_what_it_does_not_name(contact, clock):
    clock.now += 60
    let_go(contact, job(), job("two"))
    assert contact.obeyed([job("two")], snapshot=True)[0].desired == STOPPED
    assert contact.obeyed([job()], snapshot=False)[0].desired == RUNNING


def test_a_restart_remembers_and_begins_to_count_anew(contact, clock, tmp_path):
    clock.now += 90
    let_go(contact, job())
    again = Contact(tmp_path / "contact.json", clock=clock)
    assert again.standing is Standing.IN_TOUCH
    assert again.obeyed([job()], snapshot=True)[0].desired == STOPPED
    clock.now += 60
    assert again.standing is Standing.SILENT
    (tmp_path / "contact.json").write_text("{")
    assert Contact(tmp_path / "contact.json", clock=clock).standing is Standing.IN_TOUCH
