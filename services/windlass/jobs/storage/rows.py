"""Jobs as rows, and back."""

import json
from dataclasses import fields
from typing import Any

import msgspec
import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import JSONB

from windlass.jobs.domain.evaluation import EvaluationResult
from windlass.jobs.domain.job import (
    Effect,
    Job,
    JobEvent,
    JobFailure,
    JobState,
    Level,
    NewEvent,
    Plan,
    Progress,
    ProjectPlacement,
    Queue,
    Spec,
)

# `json.dumps` would make an encoder for each call.
_LABEL = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))
_FIELDS = tuple(field.name for field in fields(Job))
_FIXED = (
    "id",
    "organization_id",
    "project_id",
    "request_id",
    "spec",
    "created_at_ms",
    "model_name",
)
MUTABLE_COLUMNS = tuple(name for name in _FIELDS if name not in _FIXED)
# Records that are kept whole, as JSON.
_DOCUMENTS: dict[str, type] = {
    "spec": Spec,
    "plan": Plan,
    "place": ProjectPlacement,
    "queue": Queue,
    "progress": Progress,
    "evaluation": EvaluationResult,
    "failure": JobFailure,
}


def recordset(name: str, table: sa.Table, columns: tuple[str, ...]) -> sa.TableValuedAlias:
    """A parameter that holds rows as JSON, as a table of the columns' types."""
    rows = sa.func.jsonb_to_recordset(sa.bindparam(name, type_=JSONB))
    typed = [sa.column(column, table.c[column].type) for column in columns]
    return rows.table_valued(*typed).render_derived(name=f"{name}_in", with_types=True)


def to_job(row: Any) -> Job:
    """The job of a row of `jobs_jobs`."""
    values: dict[str, Any] = {name: getattr(row, name) for name in _FIELDS}
    for name, kind in _DOCUMENTS.items():
        if values[name] is not None:
            values[name] = msgspec.convert(values[name], kind)
    values["state"] = JobState(values["state"])
    for name in ("observed", "result_files"):
        values[name] = tuple(values[name])
    return Job(**values)


def mutable_values(job: Job) -> dict[str, Any]:
    """The columns that a change may touch, as JSON values."""
    return {name: _value(getattr(job, name)) for name in MUTABLE_COLUMNS}


def new_values(job: Job) -> dict[str, Any]:
    """Every column of a new row, as JSON values."""
    spec = job.spec
    return {name: _value(getattr(job, name)) for name in _FIELDS} | {
        "training_file": spec.training_file,
        "validation_file": spec.validation_file,
        "model_version_id": spec.model_version_id,
        "backend": spec.backend,
        "labels": [label(job.project_id, *pair) for pair in spec.metadata.items()],
    }


NEW_COLUMNS = (
    *_FIELDS,
    "training_file",
    "validation_file",
    "model_version_id",
    "backend",
    "labels",
)


def _value(value: Any) -> Any:
    if isinstance(value, JobState):
        return int(value)
    return msgspec.to_builtins(value)


def label(project_id: str, key: str, value: str) -> str:
    """A metadata pair of a project as one text; different pairs never give the same."""
    return _LABEL.encode([project_id, key, value])


def event_values(job: Job, first: int, events: tuple[NewEvent, ...]) -> list[dict[str, Any]]:
    """Rows of `jobs_events`, numbered from `first`."""
    return [
        {
            "job_id": job.id,
            "revision": first + index,
            "attempt": job.attempt if event.seq else None,
            "seq": event.seq or None,
            "at_ms": event.at_ms,
            "level": int(event.level),
            "message": event.message.replace("\0", "\N{REPLACEMENT CHARACTER}"),
            "metrics": event.metrics,
        }
        for index, event in enumerate(events)
    ]


EVENT_COLUMNS = ("job_id", "revision", "attempt", "seq", "at_ms", "level", "message", "metrics")


def to_event(row: Any) -> JobEvent:
    """The event of a row of `jobs_events`."""
    return JobEvent(
        job_id=row.job_id,
        revision=row.revision,
        at_ms=row.at_ms,
        level=Level(row.level),
        message=row.message,
        metrics=row.metrics,
    )


def effect_values(job: Job, effects: tuple[Effect, ...]) -> list[dict[str, Any]]:
    """Rows of `jobs_outbox`."""
    return [
        {
            "job_id": job.id,
            "kind": str(effect.kind),
            "attempt": effect.attempt,
            "step": effect.step,
            "payload": effect.payload,
        }
        for effect in effects
    ]
