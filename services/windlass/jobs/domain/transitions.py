"""The state machine of jobs: one pure function per transition.

Each takes the job as it is and answers what it becomes, with the events and
effects that go into the same transaction. All are idempotent: what has no
place in the present state changes nothing.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from windlass.core.backoff import doubled
from windlass.core.errors import FailedPrecondition
from windlass.jobs.domain.job import (
    ACTIVE,
    LEGAL,
    PURGE_ALL,
    TERMINAL,
    Change,
    Effect,
    EffectKind,
    Job,
    JobFailure,
    JobState,
    Level,
    NewEvent,
    Plan,
    ProjectPlacement,
    Queue,
)
from windlass.residency.rule import MOVED

# Failures of the place rather than of the job: another attempt may do better.
RETRY_REASONS = frozenset(
    {
        "AgentLost", "ClusterUnregistered", "Evicted", "ExecutorError", "NoRoom", "NodeLost",
        "Preempted", "ProcessKilled", "RunnerLost", "StartFailed",
        "download_failed", "upload_failed", MOVED,
    }
)  # fmt: skip
# Ends that nobody foresaw: the log of the attempt says more, to its tenant and to the operator.
UNFORESEEN = frozenset(
    {
        "executor_error", "internal_error", "process_exited", "runner_failed", "start_failed",
        "trainer_failed", "training_failed",
    }
)  # fmt: skip
# Said of a job until its cluster says something itself.
SENT = "Sent to the cluster, which has not accepted it yet"
# Others come first there, which is how a queue works, or the operator has given the cluster another
# geography: not counted against the job.
UNCOUNTED_REASONS = frozenset({"Preempted", MOVED})
# Of a failure, as the reason that a job waits: events have it whole.
REASON_LENGTH = 300
RETRY_DELAY_MS = 500
MAX_RETRY_DELAY_MS = 60_000


class IllegalTransition(Exception):
    """A bug: the table of transitions has no such step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finish:
    """Report of a runner that its attempt ended."""

    outcome: str
    failure: JobFailure | None = None
    trained_tokens: int = 0


def _move(job: Job, state: JobState, **values: Any) -> Job:
    if state is not job.state and state not in LEGAL[job.state]:
        raise IllegalTransition(f"{job.id}: {job.state.name} to {state.name}")
    return replace(job, state=state, **values)


def _change(before: Job, after: Job, *events: NewEvent, effects: tuple[Effect, ...] = ()) -> Change:
    """Adds what follows from the step: the workload's new desire, usage, cleaning up."""
    if before.held and not after.held:
        after, bill = _bill(replace(after, progress=replace(after.progress, phase="")))
        effects += bill
    if after.state in TERMINAL and before.state not in TERMINAL:
        effects += (Effect(kind=EffectKind.PURGE, attempt=after.attempt, step=PURGE_ALL),)
    wanted = (after.desired, after.attempt, after.workload_cluster)
    if after.workload_cluster and wanted != (
        before.desired, before.attempt, before.workload_cluster,
    ):  # fmt: skip
        after = replace(after, generation=after.generation + 1)
        effects += (Effect(kind=EffectKind.WORKLOAD, attempt=after.attempt, step=after.generation),)
    return Change(job=after, events=events, effects=effects)


def _bill(job: Job) -> tuple[Job, tuple[Effect, ...]]:
    """Owes usage the tokens of the attempt that ends, once."""
    tokens = job.trained_tokens - job.billed_tokens
    if tokens <= 0:
        return job, ()
    effect = Effect(kind=EffectKind.RECORD_USAGE, attempt=job.attempt, payload={"tokens": tokens})
    return replace(job, billed_tokens=job.trained_tokens), (effect,)


def _say(now: int, message: str, level: Level = Level.INFO) -> NewEvent:
    return NewEvent(message=message, level=level, at_ms=now)


def created(job: Job, plan: Plan | None, now: int, *, doubt: str = "") -> Change:
    """A new job: queued when its files are known to be good, else still validating.

    `doubt` says why it may wait for ever.
    """
    events = [
        _say(now, f"Created fine-tuning job: {job.id}"),
        _say(now, f"Validating training file: {job.spec.training_file}"),
    ]
    if plan is not None:
        job = _move(job, JobState.QUEUED, plan=plan)
        events.append(_say(now, "Files validated, moving job to queued state"))
    if doubt:
        events.append(_say(now, f"{doubt} The job waits for one that can.", Level.WARN))
    return Change(job=job, events=tuple(events))


def validated(job: Job, plan: Plan, now: int) -> Change:
    """The files turned out good, and the backend made its configuration."""
    if job.state is not JobState.VALIDATING:
        return Change(job=job)
    after = _move(job, JobState.QUEUED, plan=plan)
    return _change(job, after, _say(now, "Files validated, moving job to queued state"))


def unfit(job: Job, failure: JobFailure, now: int) -> Change:
    """The files turned out unusable."""
    return failed(job, failure, now) if job.state is JobState.VALIDATING else Change(job=job)


def failed(job: Job, failure: JobFailure, now: int) -> Change:
    """The job ends in failure; one that should be cancelled is cancelled instead."""
    if job.ended:
        return Change(job=job)
    if job.state is JobState.CANCELLING:
        return cancelled(job, now)
    after = _move(
        job, JobState.FAILED, failure=failure, finished_at_ms=now, estimated_finish_at_ms=0
    )
    return _change(job, after, _say(now, f"The job failed: {failure.message}", Level.ERROR))


def cancelled(job: Job, now: int) -> Change:
    """The job ends because somebody asked for it."""
    after = _move(job, JobState.CANCELLED, finished_at_ms=now, estimated_finish_at_ms=0)
    if job.state in (JobState.VALIDATING, JobState.QUEUED, JobState.PAUSED):
        after = replace(after, queue=Queue(reason="The job was cancelled while it waited."))
    return _change(job, after, _say(now, "The job was cancelled"))


def waiting(job: Job, reason: str, not_before_ms: int = 0) -> Change:
    """No cluster can take the job now."""
    if job.state is not JobState.QUEUED or job.cluster_id:
        return Change(job=job)
    after = replace(
        job, queue=Queue(reason=reason), not_before_ms=max(job.not_before_ms, not_before_ms)
    )
    return Change(job=after)


def placed(job: Job, cluster_id: str, place: ProjectPlacement | None = None) -> Change:
    """Begins a new attempt on the chosen cluster."""
    if job.state is not JobState.QUEUED or job.cluster_id:
        return Change(job=job)
    progress = replace(job.progress, tokens_per_second=0.0, since_step=0, since_ms=0, phase="")
    after = _move(
        job,
        JobState.STARTING,
        attempt=job.attempt + 1,
        cluster_id=cluster_id,
        workload_cluster=cluster_id,
        place=place,
        last_seq=0,
        observed=(),
        deadline_ms=0,
        progress=progress,
        queue=Queue(name=place.queue if place else "", reason=SENT),
    )
    return _change(job, after)


def pending(job: Job, queue: Queue) -> Change:
    """The cluster has it and lets it wait."""
    if not job.held or job.state not in (JobState.QUEUED, JobState.STARTING):
        return Change(job=job)
    return Change(job=_move(job, JobState.QUEUED, queue=queue))


def starting(job: Job, reason: str = "") -> Change:
    """The cluster gave it a place; `reason` says what its start waits for."""
    if not job.held or job.state not in (JobState.QUEUED, JobState.STARTING):
        return Change(job=job)
    return Change(job=_move(job, JobState.STARTING, queue=Queue(reason=reason)))


def running(job: Job, now: int) -> Change:
    """The attempt is at work."""
    if not job.held or job.state not in (JobState.QUEUED, JobState.STARTING):
        return Change(job=job)
    message = "Fine-tuning job resumed" if job.started_at_ms else "Fine-tuning job started"
    after = _move(job, JobState.RUNNING, queue=Queue(), started_at_ms=job.started_at_ms or now)
    return _change(job, after, _say(now, message))


def finished(
    job: Job, finish: Finish, *, owed: tuple[Effect, ...], now: int, max_attempts: int
) -> Change:
    """The runner's last word on its attempt. `owed` is what its artifacts become."""
    if job.finished_attempt == job.attempt or not job.held:
        return Change(job=job)
    tokens = max(job.trained_tokens, finish.trained_tokens)
    job = replace(job, finished_attempt=job.attempt, trained_tokens=tokens)
    if job.state is JobState.CANCELLING:
        return stopped(job, now)
    if finish.outcome == "stopped":
        # A stopped runner does not know the reason: if nobody asked for it here, the cluster says.
        return stopped(job, now) if job.state is JobState.PAUSING else Change(job=job)
    if finish.outcome == "succeeded":
        after = _move(job, JobState.FINALIZING, queue=Queue(), estimated_finish_at_ms=0)
        return _change(job, after, effects=owed)
    failure = finish.failure or JobFailure(code="internal_error", message="The training failed.")
    if failure.code in RETRY_REASONS:
        return died(
            job, reason=failure.code, message=failure.message, now=now, max_attempts=max_attempts
        )
    return failed(job, _of_attempt(job, failure), now)


def _of_attempt(job: Job, failure: JobFailure) -> JobFailure:
    """The failure on one line, with the attempt's name where its log says more."""
    message = " ".join(failure.message.split())
    if failure.code in UNFORESEEN:
        message = f"{message} See the log of attempt {job.id}-{job.attempt}."
    return replace(failure, message=message)


def stopped(job: Job, now: int) -> Change:
    """The attempt has stopped without failing."""
    if not job.held:
        return Change(job=job)
    if job.state is JobState.CANCELLING:
        return cancelled(job, now)
    if job.state is JobState.PAUSING:
        return _paused(job, now)
    after = _move(
        job, JobState.QUEUED, cluster_id="", queue=Queue(reason="The last attempt was interrupted")
    )
    after = replace(after, not_before_ms=now + RETRY_DELAY_MS, estimated_finish_at_ms=0)
    return _change(job, after, _say(now, "The job was interrupted and will continue", Level.WARN))


def _paused(job: Job, now: int) -> Change:
    after = _move(job, JobState.PAUSED, cluster_id="", queue=Queue(), estimated_finish_at_ms=0)
    return _change(job, after, _say(now, "The job is paused"))


def exited(job: Job, deadline_ms: int) -> Change:
    """The attempt's process ended well; its last word is awaited, which may still be on its way."""
    if not job.held or job.deadline_ms:
        return Change(job=job)
    return Change(job=replace(job, deadline_ms=deadline_ms))


def died(job: Job, *, reason: str, message: str, now: int, max_attempts: int) -> Change:
    """The attempt ended by itself without a word: again where the place was at fault."""
    if not job.held:
        return Change(job=job)
    if job.state in (JobState.CANCELLING, JobState.PAUSING):
        return stopped(job, now)
    said = message or f"The training process ended: {reason or 'no reason was given'}."
    failures = job.failures + (reason not in UNCOUNTED_REASONS)
    if reason not in RETRY_REASONS or failures >= max_attempts:
        if failures > 1 and reason in RETRY_REASONS:
            said = f"{said} The job was tried {failures} times."
        failure = JobFailure(code=error_code(reason), message=said)
        return failed(job, _of_attempt(job, failure), now)
    pause = doubled(RETRY_DELAY_MS, failures, longest=MAX_RETRY_DELAY_MS)
    after = _move(job, JobState.QUEUED, cluster_id="", failures=failures, not_before_ms=now + pause)
    why = " ".join(said.split()).rstrip(".")[:REASON_LENGTH]
    queue = Queue(reason=f"The last attempt ended: {why}")
    after = replace(after, queue=queue, estimated_finish_at_ms=0)
    return _change(job, after, _say(now, f"{said} The job will be tried again", Level.WARN))


def error_code(reason: str) -> str:
    """Return a reason such as `OutOfMemory` as a code such as `out_of_memory`."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", reason).lower() or "training_failed"


def agent_lost(job: Job, *, now: int, max_attempts: int) -> Change:
    """The cluster has been silent for too long; whatever still runs there is fenced off."""
    return died(
        job,
        reason="AgentLost",
        message="The cluster is not responding.",
        now=now,
        max_attempts=max_attempts,
    )


def displaced(job: Job, message: str, *, now: int, max_attempts: int) -> Change:
    """The chosen cluster may not have it any more: another one is chosen."""
    return died(job, reason=MOVED, message=message, now=now, max_attempts=max_attempts)


def cancel_requested(job: Job, now: int, *, grace_ms: int) -> Change:
    """Begins the end of a job; raises FailedPrecondition once it has ended otherwise.

    A job that is about to end stays as it is.
    """
    if job.state in (JobState.VALIDATING, JobState.QUEUED, JobState.PAUSED):
        return cancelled(job, now)
    if job.state in (JobState.STARTING, JobState.RUNNING, JobState.PAUSING):
        after = _move(
            job, JobState.CANCELLING, deadline_ms=now + grace_ms, estimated_finish_at_ms=0
        )
        return _change(job, after, _say(now, "Cancelling the job"))
    if job.state in (JobState.SUCCEEDED, JobState.FAILED):
        raise FailedPrecondition(
            f"The job has already {job.state.name.lower()}.", reason="job_not_cancellable"
        )
    return Change(job=job)


def cancelled_if_alive(job: Job, now: int, *, grace_ms: int) -> Change:
    """Begins the end of a job whose project leaves; one that has ended stays as it is."""
    return Change(job=job) if job.ended else cancel_requested(job, now, grace_ms=grace_ms)


def pause_requested(job: Job, now: int, *, grace_ms: int) -> Change:
    """Begins to give a job's resources back; raises FailedPrecondition once it is too late."""
    if job.state in (JobState.PAUSED, JobState.PAUSING):
        return Change(job=job)
    if job.state in (JobState.VALIDATING, JobState.QUEUED):
        return _paused(job, now)
    if job.state in (JobState.STARTING, JobState.RUNNING):
        after = _move(job, JobState.PAUSING, deadline_ms=now + grace_ms, estimated_finish_at_ms=0)
        return _change(job, after, _say(now, "Pausing the job"))
    raise FailedPrecondition(
        f"A job that is {job.state.name.lower()} cannot be paused.", reason="job_not_pausable"
    )


def resume_requested(job: Job, now: int) -> Change:
    """Lets a paused job go on; raises FailedPrecondition unless it is paused or goes on."""
    if job.state is JobState.PAUSED:
        state = JobState.QUEUED if job.plan is not None else JobState.VALIDATING
        return _change(job, _move(job, state, not_before_ms=0), _say(now, "The job was resumed"))
    if (
        job.state in ACTIVE - {JobState.PAUSING, JobState.CANCELLING}
        or job.state is JobState.VALIDATING
    ):
        return Change(job=job)
    if job.state is JobState.PAUSING:
        raise FailedPrecondition(
            "The job is still saving its state; resume it once it is paused.",
            reason="job_pausing",
        )
    raise FailedPrecondition(
        f"A job that is {job.state.name.lower()} cannot be resumed.", reason="job_not_paused"
    )


def registered(job: Job, name: str, now: int) -> Change:
    """The final model has its name."""
    if job.state is not JobState.FINALIZING or job.fine_tuned_model:
        return Change(job=job)
    after = replace(job, fine_tuned_model=name)
    return Change(job=after, events=(_say(now, f"New fine-tuned model created: {name}"),))


def results_filed(job: Job, file_ids: Sequence[str]) -> Change:
    """The metrics of the training are files."""
    new = [file_id for file_id in file_ids if file_id not in job.result_files]
    if job.state is not JobState.FINALIZING or not new:
        return Change(job=job)
    return Change(job=replace(job, result_files=(*job.result_files, *new)))


def merged(job: Job, name: str, now: int) -> Change:
    """The complete weights of the result have their name."""
    if job.state is not JobState.FINALIZING:
        return Change(job=job)
    return Change(job=job, events=(_say(now, f"Merged model created: {name}"),))


def delayed(job: Job, reason: str) -> Change:
    """Records why a finalizing job cannot end yet; it is tried again."""
    if job.state is not JobState.FINALIZING:
        return Change(job=job)
    return Change(job=replace(job, queue=Queue(reason=reason)))


def settled(job: Job, now: int) -> Change:
    """All effects are delivered, so a finalizing job has succeeded."""
    if job.state is not JobState.FINALIZING:
        return Change(job=job)
    after = _move(job, JobState.SUCCEEDED, queue=Queue(), finished_at_ms=now)
    return _change(job, after, _say(now, "The job has successfully completed"))


def overdue(job: Job, now: int, *, max_attempts: int) -> Change:
    """Settles an overdue wait: a stop counts as done, an attempt without end as lost."""
    if not job.held or not job.deadline_ms or now < job.deadline_ms:
        return Change(job=job)
    message = "The training process ended without a result."
    return died(job, reason="RunnerLost", message=message, now=now, max_attempts=max_attempts)
