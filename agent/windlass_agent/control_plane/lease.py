"""The lease on running jobs: without contact to the control plane, it places them elsewhere.

Without contact for T seconds, as the watch says, an agent stops its jobs, and kills what is
left of them after half of T more; the control plane waits 2 T before it places them anew. So
no job runs in two places, and nobody's wall clock matters: each side counts by its own
monotonic clock, the agent from the beginning of the last heartbeat that was answered.
"""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum, auto
from pathlib import Path

import msgspec

from windlass.api.clusters.v1 import clusters_pb2 as pb
from windlass.workload_phases import TERMINAL_PHASES
from windlass_agent.folders import write_private

GRACE_SHARE = 0.5


class LeaseState(Enum):
    """State of the contact with the control plane, as far as jobs are concerned."""

    IN_TOUCH = auto()
    # They are to save and end.
    SILENT = auto()
    # Whatever still runs is killed.
    LOST = auto()


class _Memory(msgspec.Struct):
    """State kept across restarts of the agent."""

    seconds: int = 0
    # Generation that was suspended, by workload.
    suspended: dict[str, int] = msgspec.field(default_factory=dict)


class ControlPlaneLease:
    """Counts the silence, and remembers what it ended, which never begins again.

    `file` keeps that across a restart, from whose beginning the silence counts anew.
    """

    def __init__(self, file: Path | None = None, *, clock: Callable[[], float] = time.monotonic):
        self._file = file
        self._clock = clock
        self._heard = clock()
        self._memory = _read(file)

    def now(self) -> float:
        """The clock, to give to `heard`."""
        return self._clock()

    def heard(self, asked: float) -> None:
        """The control plane has answered what it was asked then."""
        self._heard = max(self._heard, asked)

    def limit(self, seconds: int) -> None:
        """Takes T; 0 means that silence changes nothing."""
        if seconds != self._memory.seconds:
            self._memory.seconds = seconds
            self._save()

    def pace(self, heartbeat_seconds: float) -> float:
        """Seconds from one heartbeat to the next: two may get lost before T is over."""
        limit = self._memory.seconds
        return min(heartbeat_seconds, limit / 3) if limit else heartbeat_seconds

    @property
    def silence_seconds(self) -> float:
        """Seconds since the control plane was asked what it answered last."""
        return max(0.0, self._clock() - self._heard)

    @property
    def seconds_left(self) -> float | None:
        """Seconds until the silence is too long, if it lasts; None if it never is."""
        limit = self._memory.seconds
        return max(0.0, limit - self.silence_seconds) if limit else None

    @property
    def state(self) -> LeaseState:
        """The state that follows from the silence so far."""
        limit, silence = self._memory.seconds, self.silence_seconds
        if not limit or silence < limit:
            return LeaseState.IN_TOUCH
        return LeaseState.SILENT if silence < limit * (1 + GRACE_SHARE) else LeaseState.LOST

    def suspend_jobs(
        self, statuses: Iterable[pb.WorkloadStatus], wanted: Mapping[str, pb.Workload]
    ) -> list[pb.Workload]:
        """The workloads to apply so that every job ends while the lease is lost; engines go on."""
        state = self.state
        if state is LeaseState.IN_TOUCH:
            return []
        desired = (
            pb.DESIRED_STATE_STOPPED if state is LeaseState.SILENT else pb.DESIRED_STATE_DELETED
        )
        live = [status for status in statuses if status.phase not in TERMINAL_PHASES]
        jobs = [one for one in (_job(status, wanted) for status in live) if one is not None]
        ended = {job.id: job.generation for job in jobs}
        if ended.items() - self._memory.suspended.items():
            self._memory.suspended |= ended
            self._save()
        for job in jobs:
            job.desired = max(job.desired, desired)
        return jobs

    def mask_suspended(
        self, workloads: Sequence[pb.Workload], *, snapshot: bool
    ) -> list[pb.Workload]:
        """The workloads as they may be applied: what was let go of stays stopped.

        Until the control plane wants something newer of it, that is: what it says at first
        may be older than its knowledge that the attempt is over.
        """
        suspended = self._memory.suspended
        held = {one.id for one in workloads if suspended.get(one.id) == one.generation}
        named = {one.id for one in workloads}
        kept = {
            workload_id: generation
            for workload_id, generation in suspended.items()
            if workload_id in held or not (snapshot or workload_id in named)
        }
        if kept != suspended:
            self._memory.suspended = kept
            self._save()
        return [
            _copy(one, max(one.desired, pb.DESIRED_STATE_STOPPED)) if one.id in held else one
            for one in workloads
        ]

    def _save(self) -> None:
        if self._file is not None:
            write_private(self._file, msgspec.json.encode(self._memory))


def _read(file: Path | None) -> _Memory:
    if file is None or not file.exists():
        return _Memory()
    try:
        return msgspec.json.decode(file.read_bytes(), type=_Memory)
    except msgspec.DecodeError:
        return _Memory()


def _job(status: pb.WorkloadStatus, wanted: Mapping[str, pb.Workload]) -> pb.Workload | None:
    """The job of a status; None for anything else. Of an adopted one little is known."""
    known = wanted.get(status.workload_id)
    if known is None:
        return pb.Workload(
            id=status.workload_id,
            kind=pb.WORKLOAD_KIND_RUN_TO_COMPLETION,
            generation=status.generation,
        )
    return _copy(known, known.desired) if known.kind == pb.WORKLOAD_KIND_RUN_TO_COMPLETION else None


def _copy(workload: pb.Workload, desired: "pb.DesiredState.ValueType") -> pb.Workload:
    copied = pb.Workload()
    copied.CopyFrom(workload)
    copied.desired = desired
    return copied
