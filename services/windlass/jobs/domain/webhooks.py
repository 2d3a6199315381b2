"""Webhooks and the events that they hear of, whose bodies are OpenAI's webhook events. Pure."""

from dataclasses import dataclass

import msgspec

from windlass.jobs.domain.job import TERMINAL, JobState


def event_type(state: JobState) -> str:
    """The event of a job's end in this state."""
    return f"fine_tuning.job.{state.name.lower()}"


EVENT_TYPES = tuple(event_type(state) for state in sorted(TERMINAL))


@dataclass(frozen=True, slots=True, kw_only=True)
class Webhook:
    """An address of a project, and the events that it wants."""

    id: str
    project_id: str
    name: str
    url: str
    event_types: tuple[str, ...]
    created_at: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """An event that a receiver is told, with the same id however often it is told."""

    id: str
    type: str
    created_at: int
    job_id: str

    @property
    def body(self) -> bytes:
        """The event as it is sent."""
        return msgspec.json.encode(
            {
                "object": "event",
                "id": self.id,
                "type": self.type,
                "created_at": self.created_at,
                "data": {"id": self.job_id},
            }
        )


def end_of(job_id: str, kind: str, ended_at_ms: int) -> Event:
    """The event of a job's end, which happens once."""
    return Event(
        id=f"evt_{job_id.removeprefix('ftjob-')}",
        type=kind,
        created_at=ended_at_ms // 1000,
        job_id=job_id,
    )
