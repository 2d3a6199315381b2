"""Webhooks: the events that they hear of, and how one is signed. Pure.

Bodies are OpenAI's webhook events; headers and signature are those of Standard Webhooks
(https://www.standardwebhooks.com), which OpenAI's clients verify.
"""

import base64
import hashlib
import hmac
import os
from dataclasses import dataclass

import msgspec

from windlass.jobs.domain.job import TERMINAL, JobState

PREFIX = "whsec_"
_SECRET_BYTES = 32


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


def new_secret() -> str:
    """A secret as receivers are given it: `whsec_` and base64."""
    return PREFIX + base64.b64encode(os.urandom(_SECRET_BYTES)).decode()


def signed(event: Event, body: bytes, secret: str, at: int) -> dict[str, str]:
    """The headers that prove to a receiver who knows the secret what was sent, and when."""
    key = base64.b64decode(secret.removeprefix(PREFIX))
    told = f"{event.id}.{at}.".encode() + body
    digest = base64.b64encode(hmac.digest(key, told, hashlib.sha256)).decode()
    return {
        "webhook-id": event.id,
        "webhook-timestamp": str(at),
        "webhook-signature": f"v1,{digest}",
    }
