"""Which cluster takes which job. Decisions are pure; one transaction applies a batch of them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import sqlalchemy as sa

from windlass.core.db import Database
from windlass.core.ids import new_id
from windlass.core.wake import Wake
from windlass.jobs.applying import apply
from windlass.jobs.domain import TERMINAL, Change, Job, State
from windlass.jobs.outbox import LEASE_SECONDS, Outbox
from windlass.jobs.rows import to_job
from windlass.jobs.store import WAKE_WORKLOADS
from windlass.jobs.tables import jobs
from windlass.jobs.transitions import placed, waiting

BATCH = 50
# A job that fits no cluster now is looked at again after this long.
UNFIT_MS = 2000


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A live cluster, as placement sees it."""

    id: str
    slots: int
    gpus: int
    backends: frozenset[str]


def choose(job: Job, candidates: Sequence[Candidate], load: Mapping[str, int]) -> str | None:
    """The cluster with most free slots that can run the job, None if none can.

    A full cluster is taken too, the one with the shortest queue: clusters
    queue for themselves.
    """
    fitting = [
        candidate
        for candidate in candidates
        if job.spec.backend in candidate.backends and job.spec.resources.gpus <= candidate.gpus
    ]
    if not fitting:
        return None
    return max(fitting, key=lambda one: (one.slots - load.get(one.id, 0), one.id)).id


class Placement:
    """Places queued jobs, oldest first; two processes at once place different ones."""

    def __init__(self, database: Database, wake: Wake, workloads: Outbox):
        self._database = database
        self._wake = wake
        self._workloads = workloads

    async def load(self) -> dict[str, int]:
        """How many of our jobs each cluster has."""
        query = (
            sa.select(jobs.c.cluster_id, sa.func.count())
            .where(
                jobs.c.cluster_id != sa.literal_column("''"),
                jobs.c.state < sa.literal_column(f"{min(TERMINAL):d}"),
            )
            .group_by(jobs.c.cluster_id)
        )
        async with self._database.read() as connection:
            return {row[0]: row[1] for row in await connection.execute(query)}

    async def place(self, candidates: Sequence[Candidate], load: dict[str, int], now: int) -> bool:
        """Places a batch, counting it into `load`; whether there may be more."""
        backends = installed(candidates)
        token = new_id("lease_")
        async with self._database.begin() as connection:
            rows = (await connection.execute(_READY, {"backends": backends, "now": now})).all()
            before = [to_job(row) for row in rows]
            changes = [(job, decide(job, candidates, load, now)) for job in before]
            done = await apply(connection, changes, lease=token, lease_seconds=LEASE_SECONDS)
        self._workloads.hand(token, done.owed, {job.id: job for job in done.jobs})
        if done.owed:
            self._wake.touch(WAKE_WORKLOADS)
        return len(rows) == BATCH

    async def explain(self, candidates: Sequence[Candidate]) -> None:
        """Tells jobs that no live cluster could ever take why they wait."""
        reason = sa.func.concat("No live cluster has the backend ", jobs.c.backend)
        queue = sa.func.jsonb_build_object("name", "", "position", 0, "reason", reason)
        statement = (
            jobs.update()
            .where(*_unplaced(), jobs.c.backend.not_in(installed(candidates)))
            .where(jobs.c.queue["reason"].astext != reason)
            .values(queue=queue)
        )
        async with self._database.begin() as connection:
            await connection.execute(statement)


def installed(candidates: Sequence[Candidate]) -> list[str]:
    """The backends that some candidate has."""
    return sorted(frozenset().union(*(one.backends for one in candidates)))


def decide(job: Job, candidates: Sequence[Candidate], load: dict[str, int], now: int) -> Change:
    """Places a job where `choose` says, and counts it; else says why it waits."""
    chosen = choose(job, candidates, load)
    if chosen is None:
        reason = "No live cluster has the resources that the job needs"
        return waiting(job, reason, now + UNFIT_MS)
    load[chosen] = load.get(chosen, 0) + 1
    return placed(job, chosen)


def _unplaced() -> tuple[sa.ColumnElement[bool], ...]:
    # Literals, since a plan with parameters could not use the partial index.
    return (
        jobs.c.state == sa.literal_column(f"{State.QUEUED:d}"),
        jobs.c.cluster_id == sa.literal_column("''"),
    )


# Made once: building a statement costs as much as running this one.
_READY = (
    jobs.select()
    .where(
        *_unplaced(),
        jobs.c.backend.in_(sa.bindparam("backends", expanding=True)),
        jobs.c.retry_ms <= sa.bindparam("now"),
    )
    .order_by(jobs.c.sequence)
    .limit(BATCH)
    .with_for_update(skip_locked=True)
)
