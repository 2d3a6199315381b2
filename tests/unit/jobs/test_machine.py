"""The state machine under every order of what may happen to a job."""

import math
from dataclasses import replace
from enum import IntEnum

import pytest
from google.protobuf.internal.enum_type_wrapper import EnumTypeWrapper
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from windlass.api.clusters.v1 import clusters_pb2
from windlass.api.jobs.v1 import jobs_pb2
from windlass.api.runner.v1 import runner_pb2
from windlass.core.errors import FailedPrecondition
from windlass.jobs.domain import transitions as t
from windlass.jobs.domain.job import (
    ACTIVE,
    LEGAL,
    TERMINAL,
    ArtifactKind,
    Change,
    DesiredState,
    Effect,
    EffectKind,
    Job,
    JobFailure,
    JobState,
    Level,
    Plan,
    Queue,
    Spec,
)
from windlass.jobs.domain.reports import RunEvent, StepMetrics, reported
from windlass.jobs.effects.statuses import observed

MAX_ATTEMPTS = 3
PLAN = Plan(framework="trl", schema_version=1, config={"epochs": 1})
LAST_WORDS = ("The job has successfully completed", "The job failed", "The job was cancelled")


def new_job() -> Job:
    spec = Spec(
        model="tiny", model_version_id="version-1", model_bytes=1000, training_file="file-1"
    )
    return Job(
        id="ftjob-1", organization_id="org-1", project_id="proj_1", spec=spec, created_at_ms=1,
        model_name="ft:tiny:org::abcdefgh",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("ours", "theirs", "prefix"),
    [
        (JobState, jobs_pb2.JobState, "JOB_STATE_"),
        (DesiredState, clusters_pb2.DesiredState, "DESIRED_STATE_"),
        (Level, runner_pb2.Level, "LEVEL_"),
        (ArtifactKind, runner_pb2.ArtifactKind, "ARTIFACT_KIND_"),
    ],
)
def test_numbers_are_those_of_the_contract(
    ours: type[IntEnum], theirs: EnumTypeWrapper, prefix: str
) -> None:
    expected = {name.removeprefix(prefix): number for name, number in theirs.items() if number}
    assert {member.name: int(member) for member in ours} == expected


def test_terminal_states_have_no_way_out_and_every_other_has_one() -> None:
    assert {state for state, after in LEGAL.items() if not after} == TERMINAL
    assert set(LEGAL) == set(JobState)


class Lifetime(RuleBasedStateMachine):
    """One job, and a world that may do anything in any order."""

    @initialize(ready=st.booleans())
    def create(self, ready: bool) -> None:
        self.now = 1000
        self.seq = 0
        self.messages: list[str] = []
        self.owed: set[tuple[EffectKind, int, int]] = set()
        self.billed = 0
        self.ended_as: Job | None = None
        change = t.created(new_job(), PLAN if ready else None, self.now)
        self.job = change.job
        self.note(change)

    def note(self, change: Change) -> None:
        self.messages += [event.message for event in change.events]
        for effect in change.effects:
            key = (effect.kind, effect.attempt, effect.step)
            assert key not in self.owed, f"owed twice: {key}"
            self.owed.add(key)
            if effect.kind is EffectKind.RECORD_USAGE:
                self.billed += effect.payload["tokens"]

    def apply(self, change: Change) -> None:
        before, after = self.job, change.job
        assert after.state is before.state or after.state in LEGAL[before.state]
        assert before.attempt <= after.attempt <= before.attempt + 1
        assert after.generation >= before.generation
        assert after.trained_tokens >= before.trained_tokens
        assert after.last_seq >= before.last_seq or after.attempt > before.attempt
        desire = (after.desired, after.attempt, after.workload_cluster)
        if after.workload_cluster and desire != (
            before.desired, before.attempt, before.workload_cluster,
        ):  # fmt: skip
            assert after.generation == before.generation + 1
            assert EffectKind.WORKLOAD in {effect.kind for effect in change.effects}
        if before.ended:
            assert change == Change(job=before)
        self.job = after
        self.note(change)
        self.now += 1000

    @rule()
    def inspected(self) -> None:
        self.apply(t.validated(self.job, PLAN, self.now))

    @rule()
    def unusable(self) -> None:
        self.apply(t.unfit(self.job, JobFailure(code="c", message="m"), self.now))

    @rule(cluster=st.sampled_from(["c1", "c2"]))
    def place(self, cluster: str) -> None:
        self.apply(t.placed(self.job, cluster))

    @rule()
    def wait(self) -> None:
        self.apply(t.waiting(self.job, "nothing is free"))

    @rule(
        phase=st.sampled_from(
            [
                clusters_pb2.PHASE_PENDING, clusters_pb2.PHASE_STARTING,
                clusters_pb2.PHASE_RUNNING, clusters_pb2.PHASE_STOPPING,
                clusters_pb2.PHASE_SUCCEEDED, clusters_pb2.PHASE_FAILED,
                clusters_pb2.PHASE_STOPPED,
            ]
        ),
        reason=st.sampled_from(["ProcessKilled", "OutOfMemory", "Error", ""]),
        late=st.booleans(),
    )  # fmt: skip
    def status(self, phase: "clusters_pb2.Phase.ValueType", reason: str, late: bool) -> None:
        status = clusters_pb2.WorkloadStatus(
            workload_id=self.job.id, generation=self.job.generation - late, phase=phase,
            reason=reason, cluster_id=self.job.cluster_id,
        )  # fmt: skip
        change = observed(self.job, status, now=self.now, max_attempts=MAX_ATTEMPTS)
        if late:
            assert change == Change(job=self.job)
        self.apply(change)

    @precondition(lambda self: self.job.held)
    @rule(count=st.integers(1, 3), repeat=st.booleans(), tokens=st.integers(0, 500))
    def report(self, count: int, repeat: bool, tokens: int) -> None:
        first = self.job.last_seq + 1
        events = [
            RunEvent(
                seq=first + i, at_ms=self.now,
                metrics=StepMetrics(
                    step=first + i, total_steps=100, epoch=0.5, values={"train_loss": 1.0},
                    trained_tokens=tokens,
                ),
            )
            for i in range(count)
        ]  # fmt: skip
        self.apply(reported(self.job, events, self.now))
        assert self.job.last_seq == first + count - 1
        if repeat:
            again = reported(self.job, events, self.now)
            assert again == Change(job=self.job)

    @rule(
        outcome=st.sampled_from(["succeeded", "failed", "stopped"]),
        code=st.sampled_from(["invalid_training_file", "upload_failed"]),
        tokens=st.integers(0, 1000),
    )
    def finish(self, outcome: str, code: str, tokens: int) -> None:
        failure = JobFailure(code=code, message="m") if outcome == "failed" else None
        finish = t.Finish(outcome=outcome, failure=failure, trained_tokens=tokens)
        owed = (Effect(kind=EffectKind.REGISTER_MODEL, attempt=self.job.attempt),)
        self.apply(t.finished(self.job, finish, owed=owed, now=self.now, max_attempts=MAX_ATTEMPTS))
        again = t.finished(self.job, finish, owed=owed, now=self.now, max_attempts=MAX_ATTEMPTS)
        assert again == Change(job=self.job)

    @rule()
    def lose_the_agent(self) -> None:
        self.apply(t.agent_lost(self.job, now=self.now, max_attempts=MAX_ATTEMPTS))

    @rule()
    def cancel(self) -> None:
        if self.job.state in (JobState.SUCCEEDED, JobState.FAILED):
            with pytest.raises(FailedPrecondition, match="has already"):
                t.cancel_requested(self.job, self.now, grace_ms=5000)
            return
        self.apply(t.cancel_requested(self.job, self.now, grace_ms=5000))
        assert t.cancel_requested(self.job, self.now, grace_ms=5000) == Change(job=self.job)

    @rule()
    def pause(self) -> None:
        try:
            self.apply(t.pause_requested(self.job, self.now, grace_ms=5000))
        except FailedPrecondition:
            assert self.job.ended or self.job.state in (JobState.FINALIZING, JobState.CANCELLING)

    @rule()
    def resume(self) -> None:
        try:
            self.apply(t.resume_requested(self.job, self.now))
        except FailedPrecondition:
            assert self.job.state not in (JobState.PAUSED, JobState.QUEUED, JobState.RUNNING)

    @rule(late=st.booleans())
    def patrol(self, late: bool) -> None:
        now = self.now + 10**9 * late
        self.apply(t.overdue(self.job, now, max_attempts=MAX_ATTEMPTS))
        if late and self.job.held:
            assert not self.job.deadline_ms

    @rule()
    def register(self) -> None:
        self.apply(t.registered(self.job, self.job.model_name, self.now))
        self.apply(t.results_filed(self.job, ["file-result"]))
        assert len(self.job.result_files) <= 1

    @rule()
    def registration_refused(self) -> None:
        if self.job.state is JobState.FINALIZING:
            self.apply(t.failed(self.job, JobFailure(code="c", message="m"), self.now))

    @rule()
    def settle(self) -> None:
        self.apply(t.settled(self.job, self.now))

    @invariant()
    def last_words_are_said_once(self) -> None:
        said = [text for text in self.messages if text.startswith(LAST_WORDS)]
        assert len(said) == (1 if self.job.ended else 0)
        assert bool(self.job.finished_at_ms) == self.job.ended
        assert (self.job.failure is not None) == (self.job.state is JobState.FAILED)

    @invariant()
    def tokens_of_ended_attempts_are_billed_once(self) -> None:
        assert self.billed == self.job.billed_tokens
        if not self.job.held:
            assert self.job.billed_tokens == self.job.trained_tokens

    @invariant()
    def nothing_runs_that_should_not(self) -> None:
        if self.job.desired is DesiredState.RUNNING:
            assert self.job.cluster_id
            assert self.job.state in ACTIVE
        if self.job.ended or self.job.state is JobState.PAUSED:
            assert self.job.desired is DesiredState.DELETED


TestLifetime = Lifetime.TestCase
TestLifetime.settings = settings(max_examples=300, stateful_step_count=40)


def test_an_attempt_that_died_by_itself_is_tried_again_until_it_is_too_often() -> None:
    job = t.created(new_job(), PLAN, 1).job
    for attempt in range(1, MAX_ATTEMPTS + 1):
        job = t.running(t.placed(job, "c1").job, 10).job
        assert job.attempt == attempt
        job = t.died(job, reason="ProcessKilled", message="", now=20, max_attempts=MAX_ATTEMPTS).job
    assert job.state is JobState.FAILED
    assert job.failure is not None
    assert job.failure.code == "process_killed"
    assert "tried 3 times" in job.failure.message


def test_pausing_does_not_count_as_a_failure() -> None:
    job = t.created(new_job(), PLAN, 1).job
    for _ in range(MAX_ATTEMPTS + 2):
        job = t.running(t.placed(job, "c1").job, 10).job
        job = t.stopped(t.pause_requested(job, 20, grace_ms=5000).job, 30).job
        assert job.state is JobState.PAUSED
        job = t.resume_requested(job, 40).job
    assert job.failures == 0


def test_the_queue_is_told_and_forgotten() -> None:
    job = t.placed(t.created(new_job(), PLAN, 1).job, "c1").job
    job = t.pending(job, Queue(position=3, reason="No free slot")).job
    assert (job.state, job.queue.position) == (JobState.QUEUED, 3)
    assert t.starting(job).job.queue == Queue()
    assert t.starting(job, "Pulling the image").job.queue == Queue(reason="Pulling the image")


def test_a_job_that_is_tried_again_says_why_in_words() -> None:
    job = t.running(t.placed(t.created(new_job(), PLAN, 1).job, "c1").job, 10).job
    assert t.stopped(job, 20).job.queue.reason == "The last attempt was interrupted"
    lost = t.agent_lost(job, now=20, max_attempts=MAX_ATTEMPTS).job
    assert lost.queue.reason == "The last attempt ended: The cluster is not responding"


def test_a_job_that_is_cancelled_while_it_waits_says_so() -> None:
    job = t.placed(t.created(new_job(), PLAN, 1).job, "c1").job
    job = t.pending(job, Queue(position=3, reason="No free slot")).job
    job = t.cancel_requested(job, 2, grace_ms=5000).job
    assert job.queue == Queue(reason="The job was cancelled while it waited.")


def test_a_metrics_event_reads_like_openais_and_keeps_numbers_that_json_knows() -> None:
    job = t.placed(t.created(new_job(), PLAN, 1).job, "c1").job
    metrics = StepMetrics(
        step=10, total_steps=120, epoch=0.25, trained_tokens=500,
        values={"train_loss": 1.234, "valid_loss": 2.0, "grad_norm": float("nan")},
    )  # fmt: skip
    change = reported(job, [RunEvent(seq=1, at_ms=5000, metrics=metrics)], 6000)
    told = change.events[-1]
    assert told.message == "Step 10/120: training loss=1.23, validation loss=2.00"
    assert told.metrics == {
        "attempt": 1, "step": 10, "total_steps": 120, "epoch": 0.25, "grad_norm": None,
        "train_loss": 1.234, "valid_loss": 2.0,
    }  # fmt: skip
    assert change.job.state is JobState.RUNNING
    assert change.job.trained_tokens == 500


def test_a_metrics_event_tells_of_rewards_too() -> None:
    job = t.placed(t.created(new_job(), PLAN, 1).job, "c1").job
    values = {"train_loss": 0.0, "train_mean_reward": 0.625}
    metrics = StepMetrics(step=1, total_steps=2, epoch=0, values=values, trained_tokens=1)
    told = reported(job, [RunEvent(seq=1, at_ms=5, metrics=metrics)], 6).events[-1]
    assert told.message == "Step 1/2: training reward=0.62, training loss=0.00"


def test_a_job_says_what_its_runner_is_doing() -> None:
    job = t.placed(t.created(new_job(), PLAN, 1).job, "c1").job
    for seq, phase in enumerate(("preparing", "starting", "pretending"), start=1):
        job = reported(job, [RunEvent(seq=seq, at_ms=5, phase=phase)], 6).job
    assert (job.state, job.progress.phase) == (JobState.STARTING, "starting")
    metrics = StepMetrics(step=1, total_steps=2, epoch=0, values={}, trained_tokens=1)
    job = reported(job, [RunEvent(seq=4, at_ms=5, metrics=metrics)], 6).job
    assert (job.progress.phase, job.progress.step) == ("training", 1)
    job = t.stopped(t.pause_requested(job, 20, grace_ms=5000).job, 30).job
    assert (job.progress.phase, job.progress.step) == ("", 1)


def test_the_latest_measures_stay_while_a_job_waits_to_go_on() -> None:
    job = t.placed(t.created(new_job(), PLAN, 1).job, "c1").job
    for seq, values in enumerate(({"train_loss": 2.0, "train_mean_reward": 0.5}, {}), start=1):
        metrics = StepMetrics(step=seq, total_steps=9, epoch=0, values=values, trained_tokens=1)
        job = reported(job, [RunEvent(seq=seq, at_ms=seq, metrics=metrics)], 6).job
    job = t.stopped(t.pause_requested(job, 20, grace_ms=5000).job, 30).job
    job = t.placed(t.resume_requested(job, 40).job, "c1").job
    assert (job.progress.step, job.progress.since_ms, job.progress.phase) == (2, 0, "")
    assert (job.progress.train_loss, job.progress.train_mean_reward) == (2.0, 0.5)
    diverged = StepMetrics(
        step=3, total_steps=9, epoch=0, values={"train_loss": math.nan}, trained_tokens=1
    )
    job = reported(job, [RunEvent(seq=1, at_ms=5, metrics=diverged)], 50).job
    assert (job.progress.train_loss, job.progress.train_mean_reward) == (None, 0.5)


def test_the_end_is_estimated_from_this_attempts_own_speed() -> None:
    job = replace(t.placed(t.created(new_job(), PLAN, 1).job, "c1").job, created_at_ms=0)
    for seq, (step, at) in enumerate([(50, 10_000), (60, 20_000)], start=1):
        metrics = StepMetrics(step=step, total_steps=100, epoch=1, values={}, trained_tokens=seq)
        job = reported(job, [RunEvent(seq=seq, at_ms=at, metrics=metrics)], at).job
    assert job.estimated_finish_at_ms == 20_000 + 40_000


def test_a_process_that_ended_well_is_given_time_for_its_last_word() -> None:
    job = t.running(t.placed(t.created(new_job(), PLAN, 1).job, "c1").job, 10).job
    job = t.exited(job, 60_000).job
    assert t.overdue(job, 59_999, max_attempts=MAX_ATTEMPTS) == Change(job=job)
    owed = (Effect(kind=EffectKind.REGISTER_MODEL, attempt=1),)
    said = t.finished(
        job, t.Finish(outcome="succeeded"), owed=owed, now=59_999, max_attempts=MAX_ATTEMPTS
    )
    assert said.job.state is JobState.FINALIZING
    assert t.overdue(job, 60_000, max_attempts=MAX_ATTEMPTS).job.state is JobState.QUEUED
