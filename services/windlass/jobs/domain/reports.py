"""Reports of runners, and the changes that they make to their jobs. Pure."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from windlass.jobs.domain.evaluation import EvaluationResult
from windlass.jobs.domain.job import Change, Job, Level, NewEvent, Progress
from windlass.jobs.domain.transitions import running

MESSAGE_LENGTH = 2000
MAX_VALUES = 32
NAME_LENGTH = 64
# Beyond 2^53 a JSON reader loses digits, and nothing real is that large.
MAX_NUMBER = 2**53
MAX_STEP = 2**40
# No fine-tuning comes near; the sums of half a million such jobs fit a column.
MAX_TOKENS = 2**44

# What a runner does, in this order: it gets its inputs, starts the trainer, trains, evaluates if
# asked to, writes other forms of the model if asked to, and uploads.
PHASES = ("preparing", "starting", "training", "evaluating", "exporting", "uploading")

_MEASURES = (
    ("train_mean_reward", "training reward"),
    ("valid_mean_reward", "validation reward"),
    ("train_loss", "training loss"),
    ("valid_loss", "validation loss"),
    ("full_valid_loss", "full validation loss"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class StepMetrics:
    """Numbers of one training step. `trained_tokens` counts all attempts."""

    step: int
    total_steps: int
    epoch: float
    values: Mapping[str, float]
    trained_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RunEvent:
    """One thing that happened in an attempt; `seq` counts from 1."""

    seq: int
    at_ms: int
    level: Level = Level.INFO
    message: str = ""
    metrics: StepMetrics | None = None
    phase: str = ""
    evaluation: EvaluationResult | None = None


def reported(job: Job, events: Sequence[RunEvent], now: int) -> Change:
    """Appends the events that are new; a repeat changes nothing."""
    fresh = [event for event in _in_order(events) if event.seq > job.last_seq]
    if not fresh or not job.held:
        return Change(job=job)
    begun = any(event.metrics is not None or event.phase == "training" for event in fresh)
    started = running(job, now) if begun else Change(job=job)
    told = [
        _event(event, job, now=now) for event in fresh if event.message or event.metrics is not None
    ]
    job = replace(started.job, last_seq=fresh[-1].seq)
    for event in fresh:
        if event.phase in PHASES:
            job = replace(job, progress=replace(job.progress, phase=event.phase))
        if event.metrics is not None:
            job = _advance(job, event.metrics, min(event.at_ms, now))
        if event.evaluation is not None and job.spec.evaluation and not job.evaluation:
            job = replace(job, evaluation=event.evaluation)
    return Change(job=job, events=(*started.events, *told), effects=started.effects)


def _in_order(events: Sequence[RunEvent]) -> list[RunEvent]:
    by_seq = {event.seq: event for event in events}
    return [by_seq[seq] for seq in sorted(by_seq)]


def _event(event: RunEvent, job: Job, *, now: int) -> NewEvent:
    return NewEvent(
        message=(event.message or _sentence(event.metrics))[:MESSAGE_LENGTH],
        level=event.level,
        metrics=None if event.metrics is None else _document(event.metrics, job.attempt),
        # A runner's clock may be off; nothing happens before the job or after now.
        at_ms=min(max(event.at_ms, job.created_at_ms), now),
        seq=event.seq,
    )


def _sentence(metrics: StepMetrics | None) -> str:
    if metrics is None:
        return ""
    shown = [
        f"{words}={metrics.values[name]:.2f}" for name, words in _MEASURES if name in metrics.values
    ]
    total = f"/{metrics.total_steps}" if metrics.total_steps else ""
    return f"Step {metrics.step}{total}: {', '.join(shown)}".removesuffix(": ")


def _document(metrics: StepMetrics, attempt: int) -> dict[str, Any]:
    """The metrics as JSON, which knows neither infinity nor NaN."""
    document: dict[str, Any] = {
        "attempt": attempt,
        "step": metrics.step,
        "total_steps": metrics.total_steps,
        "epoch": _number(metrics.epoch),
    }
    for name, value in sorted(metrics.values.items())[:MAX_VALUES]:
        document.setdefault(name[:NAME_LENGTH], _number(value))
    return document


def _number(value: float) -> float | None:
    return value if math.isfinite(value) and abs(value) <= MAX_NUMBER else None


def _advance(job: Job, metrics: StepMetrics, at_ms: int) -> Job:
    before = job.progress
    since_step, since_ms = before.since_step, before.since_ms
    if not since_ms:
        since_step, since_ms = metrics.step, at_ms
    values = metrics.values
    speed = _latest(values, "tokens_per_second", before.tokens_per_second)
    progress = Progress(
        step=metrics.step,
        total_steps=metrics.total_steps or before.total_steps,
        tokens_per_second=speed or 0.0,
        since_step=since_step,
        since_ms=since_ms,
        phase="training",
        train_loss=_latest(values, "train_loss", before.train_loss),
        train_mean_reward=_latest(values, "train_mean_reward", before.train_mean_reward),
    )
    return replace(
        job,
        progress=progress,
        trained_tokens=max(job.trained_tokens, metrics.trained_tokens),
        estimated_finish_at_ms=_estimate(progress, at_ms) or job.estimated_finish_at_ms,
    )


def _latest(values: Mapping[str, float], name: str, before: float | None) -> float | None:
    return _number(values[name]) if name in values else before


def _estimate(progress: Progress, at_ms: int) -> int:
    """Returns when the last step will end if the rest goes as this attempt has gone; 0 if
    unknown.
    """
    done, left = progress.step - progress.since_step, progress.total_steps - progress.step
    if done <= 0 or left < 0 or at_ms <= progress.since_ms:
        return 0
    end = at_ms + (at_ms - progress.since_ms) * left // done
    return end if end <= MAX_NUMBER else 0
