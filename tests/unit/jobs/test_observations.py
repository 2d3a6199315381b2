"""Observations of attempts are recorded once, whatever is repeated."""

from dataclasses import replace
from typing import Any

from windlass.api.clusters.v1 import clusters_pb2 as pb
from windlass.jobs.domain import transitions as t
from windlass.jobs.domain.job import (
    Change,
    Job,
    JobFailure,
    JobState,
    Level,
    Plan,
    ProjectPlacement,
    Queue,
    Spec,
)
from windlass.jobs.effects.statuses import MAX_OBSERVED, observed

NOW = 10_000


def placed_job() -> Job:
    spec = Spec(model="tiny", model_version_id="v", model_bytes=1, training_file="file-1")
    job = Job(
        id="ftjob-1", organization_id="org-1", project_id="proj_1", spec=spec, created_at_ms=1000,
        model_name="ft:tiny:org::abcdefgh", state=JobState.QUEUED,
        plan=Plan(framework="trl", schema_version=1, config={}),
    )  # fmt: skip
    return t.placed(job, "cluster-1", ProjectPlacement(namespace="team-a", queue="team-a")).job


def status(
    job: Job, phase: "pb.Phase.ValueType" = pb.PHASE_PENDING, **values: Any
) -> pb.WorkloadStatus:
    return pb.WorkloadStatus(
        workload_id=job.id, generation=job.generation, cluster_id="cluster-1", phase=phase, **values
    )


def seen(
    key: str, message: str = "", *, at_ms: int = 5000, warning: bool = False
) -> pb.Observation:
    return pb.Observation(key=key, message=message or key, at_ms=at_ms, warning=warning)


def look(job: Job, news: pb.WorkloadStatus) -> Change:
    return observed(job, news, now=NOW, max_attempts=3)


def test_each_observation_becomes_one_event_in_order() -> None:
    job = placed_job()
    first = look(job, status(job, observations=[seen("1/queued"), seen("1/reserved")]))
    assert [event.message for event in first.events] == ["1/queued", "1/reserved"]
    again = status(job, observations=[seen("1/queued"), seen("1/reserved"), seen("1/admitted")])
    second = look(first.job, again)
    assert [event.message for event in second.events] == ["1/admitted"]
    assert look(second.job, again) == Change(job=second.job)


def test_an_observation_comes_before_what_its_status_makes_of_the_job() -> None:
    job = placed_job()
    news = [seen("1/preempted", "Others came first", warning=True)]
    change = look(job, status(job, pb.PHASE_FAILED, reason="Preempted", observations=news))
    assert [event.level for event in change.events] == [Level.WARN, Level.WARN]
    assert change.events[0].message == "Others came first"
    assert change.job.state is JobState.QUEUED


def test_nothing_happens_before_the_job_or_after_now() -> None:
    job = placed_job()
    news = [seen("a", at_ms=1), seen("b", at_ms=99_999), seen("c", at_ms=5000)]
    change = look(job, status(job, observations=news))
    assert [event.at_ms for event in change.events] == [1000, NOW, 5000]


def test_keys_are_bounded_and_long_ones_still_told_once() -> None:
    job = placed_job()
    for number in range(20):
        job = look(job, status(job, observations=[seen(f"{number}-{i}") for i in range(16)])).job
    assert len(job.observed) == MAX_OBSERVED
    long = status(job, observations=[seen("k" * 500)])
    first = look(job, long)
    assert len(first.events) == 1
    assert look(first.job, long) == Change(job=first.job)


def test_of_too_many_the_newest_are_told() -> None:
    job = placed_job()
    change = look(job, status(job, observations=[seen(str(i)) for i in range(40)]))
    assert [event.message for event in change.events] == [str(i) for i in range(24, 40)]


def test_a_new_attempt_begins_without_any() -> None:
    job = placed_job()
    job = look(job, status(job, observations=[seen("1/queued")])).job
    job = look(job, status(job, pb.PHASE_FAILED, reason="Preempted")).job
    assert t.placed(job, "cluster-1").job.observed == ()


def test_a_stale_status_tells_nothing() -> None:
    job = placed_job()
    stale = status(replace(job, generation=job.generation - 1), observations=[seen("1/queued")])
    assert look(job, stale) == Change(job=job)


def test_the_queue_keeps_its_name_place_and_reason() -> None:
    job = placed_job()
    waits = status(job, queue="team-b", queue_position=3, message="1 more needed", reason="Queued")
    assert look(job, waits).job.queue == Queue(name="team-b", position=3, reason="1 more needed")
    nameless = status(job, reason="Queued")
    assert look(job, nameless).job.queue == Queue(name="team-a", reason="Queued")


def test_a_start_says_what_it_waits_for() -> None:
    starts = status(placed_job(), pb.PHASE_STARTING, reason="Pulling", message="Pulling the image")
    assert look(placed_job(), starts).job.queue == Queue(reason="Pulling the image")


def test_being_preempted_is_not_counted_against_the_job() -> None:
    job = placed_job()
    for _ in range(10):
        job = look(job, status(job, pb.PHASE_FAILED, reason="Preempted")).job
        assert (job.state, job.failures) == (JobState.QUEUED, 0)
        job = t.placed(job, "cluster-1").job
    for _ in range(3):
        job = look(job, status(job, pb.PHASE_FAILED, reason="NodeLost")).job
        if job.state is JobState.QUEUED:
            job = t.placed(job, "cluster-1").job
    assert job.state is JobState.FAILED


def test_who_was_stopped_knows_not_why_so_its_cluster_tells() -> None:
    running = t.running(placed_job(), NOW).job
    word = t.Finish(outcome="stopped", trained_tokens=7)
    job = t.finished(running, word, owed=(), now=NOW, max_attempts=3).job
    assert (job.state, job.trained_tokens) == (JobState.RUNNING, 7)
    full = look(job, status(job, pb.PHASE_FAILED, reason="StorageExceeded", message="Too much."))
    assert full.job.state is JobState.FAILED
    assert full.job.failure is not None
    assert full.job.failure.code == "storage_exceeded"
    drained = look(job, status(job, pb.PHASE_STOPPED)).job
    assert (drained.state, drained.failures) == (JobState.QUEUED, 0)


def test_a_stop_that_was_asked_for_here_is_done_with_the_runners_word() -> None:
    running = t.running(placed_job(), NOW).job
    word = t.Finish(outcome="stopped")
    for ask, state in (
        (t.pause_requested, JobState.PAUSED),
        (t.cancel_requested, JobState.CANCELLED),
    ):
        job = ask(running, NOW, grace_ms=1000).job
        assert t.finished(job, word, owed=(), now=NOW, max_attempts=3).job.state is state


def test_a_failure_is_one_line_and_names_the_attempt_whose_log_says_more() -> None:
    running = t.running(placed_job(), NOW).job
    failure = JobFailure(code="trainer_failed", message="It ended:\n  ValueError.")
    ended = t.finished(
        running, t.Finish(outcome="failed", failure=failure), owed=(), now=NOW, max_attempts=3
    )
    said = f"It ended: ValueError. See the log of attempt {running.id}-{running.attempt}."
    assert ended.job.failure == replace(failure, message=said)
    assert [event.message for event in ended.events] == [f"The job failed: {said}"]
    crashed = look(running, status(running, pb.PHASE_FAILED, reason="ProcessExited", message="x."))
    assert crashed.job.failure is not None
    assert crashed.job.failure.message.endswith(f"of attempt {running.id}-{running.attempt}.")
    # What a tenant can mend needs no log.
    failure = JobFailure(code="invalid_training_file", message="Line 2: no.")
    ended = t.finished(
        running, t.Finish(outcome="failed", failure=failure), owed=(), now=NOW, max_attempts=3
    )
    assert ended.job.failure == failure
