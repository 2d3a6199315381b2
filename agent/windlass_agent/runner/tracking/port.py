"""Interface of experiment trackers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from windlass_agent.runner.protocol.outcome import OutcomeKind


class TrackerError(Exception):
    """A tracker that did not do its part, in words that hold nothing of what was sent."""


class Away(TrackerError):
    """A tracker that is away or busy: the same call may succeed later."""


class Unwilling(TrackerError):
    """The tracker refuses for good, such as for a wrong secret or address."""

    def __init__(self, message: str, *, status: int = 0, code: str = "") -> None:
        super().__init__(message)
        self.status = status
        self.code = code


@dataclass(frozen=True, slots=True, kw_only=True)
class TrackedRun:
    """A job, as trackers show it."""

    job_id: str
    base_model: str
    # The name that the result has in the models API.
    model_name: str
    params: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Point:
    """Metrics of one step, named as in docs/reference/metrics.md."""

    step: int
    at_ms: int
    values: Mapping[str, float]


class Tracker(Protocol):
    """One place that a job reports to; every call may be repeated after Away."""

    title: str

    async def begin(self, run: TrackedRun) -> str:
        """Creates the run, or continues that of an earlier attempt; returns its address."""

    async def log(self, points: Sequence[Point]) -> None:
        """Takes measurements in the order of their steps."""

    async def finish(self, verdict: OutcomeKind, files: Sequence[Path]) -> None:
        """Ends the run, and takes small files that say what it made."""
