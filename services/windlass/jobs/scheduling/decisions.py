"""Placement decisions of the latest attempts: a verdict for each cluster."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from windlass.core.db import Database
from windlass.jobs.domain.job import Job
from windlass.jobs.scheduling.scoring import Verdict
from windlass.jobs.storage.rows import recordset
from windlass.jobs.storage.tables import decisions

# Of a hundred clusters, those that suit best tell enough.
MAX_VERDICTS = 20
_COLUMNS = ("job_id", "attempt", "decided_at_ms", "verdicts")


@dataclass(frozen=True, slots=True)
class Decision:
    """A job as it was before, and the verdicts on its clusters, the best first."""

    job: Job
    verdicts: tuple[Verdict, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Decided:
    """A decision as it was taken."""

    attempt: int = 0
    # Unix milliseconds; 0 for a decision that is still to be taken.
    at_ms: int = 0
    verdicts: tuple[Verdict, ...] = ()
    # Why there is none.
    reason: str = ""


def _statement() -> Any:
    rows = recordset("decisions", decisions, _COLUMNS)
    new = insert(decisions).from_select(_COLUMNS, sa.select(*(rows.c[name] for name in _COLUMNS)))
    later = {name: new.excluded[name] for name in _COLUMNS[1:]}
    return new.on_conflict_do_update(index_elements=["job_id"], set_=later)


_NOTE = _statement()


async def note(connection: AsyncConnection, taken: Sequence[Decision], now: int) -> None:
    """Stores decisions in the transaction that places their jobs."""
    if not taken:
        return
    rows = [
        {
            "job_id": decision.job.id,
            "attempt": decision.job.attempt + 1,
            "decided_at_ms": now,
            "verdicts": msgspec.to_builtins(decision.verdicts[:MAX_VERDICTS]),
        }
        for decision in taken
    ]
    await connection.execute(_NOTE, {"decisions": rows})


class DecisionStore:
    """Decisions of jobs that the caller has looked up in their project."""

    def __init__(self, database: Database):
        self._database = database

    async def latest(self, job: Job) -> Decided:
        """The decision that brought about the job's present attempt; empty when there is none."""
        query = decisions.select().where(
            decisions.c.job_id == job.id, decisions.c.attempt == job.attempt
        )
        async with self._database.autocommit() as connection:
            row = (await connection.execute(query)).first()
        if row is None:
            return Decided()
        verdicts = msgspec.convert(row.verdicts, tuple[Verdict, ...])
        return Decided(attempt=row.attempt, at_ms=row.decided_at_ms, verdicts=verdicts)
