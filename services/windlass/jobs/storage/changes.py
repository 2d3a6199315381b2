"""Storage of transitions: jobs, events, effects and deliveries to webhooks, in one statement for
any number.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from windlass.jobs.domain.job import Change, Job
from windlass.jobs.domain.webhooks import event_type
from windlass.jobs.storage.rows import (
    EVENT_COLUMNS,
    MUTABLE_COLUMNS,
    effect_values,
    event_values,
    mutable_values,
    recordset,
)
from windlass.jobs.storage.tables import deliveries, events, jobs, outbox, webhooks

_EFFECT_COLUMNS = ("job_id", "kind", "attempt", "step", "payload")
_END_COLUMNS = ("project_id", "job_id", "event_type", "ended_at_ms")


@dataclass(frozen=True, slots=True)
class AppliedChanges:
    """Stored changes: the jobs as they are now, and the rows owed on their behalf."""

    jobs: list[Job]
    owed: Sequence[sa.Row[Any]]


def _statement() -> sa.Select[Any]:
    job_rows = recordset("jobs", jobs, ("id", *MUTABLE_COLUMNS))
    moved = (
        jobs.update()
        .where(jobs.c.id == job_rows.c.id)
        .values({name: job_rows.c[name] for name in MUTABLE_COLUMNS})
        .returning(jobs.c.id)
        .cte("moved")
    )
    event_rows = recordset("events", events, EVENT_COLUMNS)
    told = insert(events).from_select(EVENT_COLUMNS, sa.select(*_in_order(event_rows))).cte("told")
    effect_rows = recordset("effects", outbox, _EFFECT_COLUMNS)
    # No parameter here may have the name of a column: SQLAlchemy would set that column to it.
    holder = sa.bindparam("held_by", type_=sa.Text)
    until = sa.func.now() + sa.func.make_interval(0, 0, 0, 0, 0, 0, sa.bindparam("held_seconds"))
    owed = (
        insert(outbox)
        .from_select(
            (*_EFFECT_COLUMNS, "lease_owner", "lease_until"),
            sa.select(*(effect_rows.c[name] for name in _EFFECT_COLUMNS), holder, until),
        )
        .on_conflict_do_nothing()
        .returning(outbox)
        .cte("owed")
    )
    return sa.select(owed).add_cte(moved, told, _announced())


def _announced() -> sa.CTE:
    """Inserts a delivery for each job that ended and each webhook that wants to hear of it."""
    ends = recordset("ends", deliveries, _END_COLUMNS)
    wanted = sa.and_(
        webhooks.c.project_id == ends.c.project_id,
        ends.c.event_type == sa.any_(webhooks.c.event_types),
    )
    values = [webhooks.c.id, *(ends.c[name] for name in _END_COLUMNS), ends.c.ended_at_ms]
    return (
        insert(deliveries)
        .from_select(
            ("webhook_id", *_END_COLUMNS, "not_before_ms"),
            sa.select(*values).select_from(ends.join(webhooks, wanted)),
        )
        .cte("announced")
    )


def _in_order(rows: sa.FromClause) -> Iterator[sa.ColumnElement[Any]]:
    """The columns of new events, none earlier than the event before it, by whatever clock."""
    before = (
        sa.select(events.c.at_ms)
        .where(events.c.job_id == rows.c.job_id)
        .order_by(events.c.revision.desc())
        .limit(1)
        .scalar_subquery()
    )
    so_far = sa.func.max(rows.c.at_ms).over(partition_by=rows.c.job_id, order_by=rows.c.revision)
    for name in EVENT_COLUMNS:
        yield sa.func.greatest(so_far, before) if name == "at_ms" else rows.c[name]


_APPLY = _statement()


async def apply(
    connection: AsyncConnection,
    changes: Sequence[tuple[Job, Change]],
    *,
    lease: str | None = None,
    lease_seconds: float = 0.0,
) -> AppliedChanges:
    """Stores changes of jobs whose rows the caller has locked, each with the job before it.

    What they owe is leased under `lease` if one is given, so that the caller may
    deliver it without claiming it first.
    """
    after = [
        replace(change.job, revision=before.revision + len(change.events))
        for before, change in changes
    ]
    effects = [
        row
        for job, (_, change) in zip(after, changes, strict=True)
        for row in effect_values(job, change.effects)
    ]
    values = {
        "jobs": [
            {"id": job.id, **mutable_values(job)}
            for job, (before, _) in zip(after, changes, strict=True)
            if job != before
        ],
        "events": [
            row
            for job, (before, change) in zip(after, changes, strict=True)
            for row in event_values(job, before.revision + 1, change.events)
        ],
        "effects": effects,
        "ends": [
            {
                "project_id": job.project_id,
                "job_id": job.id,
                "event_type": event_type(job.state),
                "ended_at_ms": job.finished_at_ms,
            }
            for job, (before, _) in zip(after, changes, strict=True)
            if job.ended and not before.ended
        ],
        "held_by": lease,
        "held_seconds": lease_seconds,
    }
    if not values["jobs"] and not effects:
        return AppliedChanges(after, ())
    return AppliedChanges(after, (await connection.execute(_APPLY, values)).all())
