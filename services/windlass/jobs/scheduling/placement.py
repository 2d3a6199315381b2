"""Placement of jobs on clusters. Decisions are pure; one transaction applies a batch of them."""

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import ARRAY

from windlass.core.config import Settings
from windlass.core.db import Database
from windlass.core.db.wake import Wake
from windlass.core.ids import new_id
from windlass.core.killpoints import reach
from windlass.core.quotas import Quotas
from windlass.jobs.domain.job import Change, Job, JobState
from windlass.jobs.domain.transitions import placed, waiting
from windlass.jobs.scheduling.cluster_snapshot import ClusterSnapshot
from windlass.jobs.scheduling.decisions import Decision, note
from windlass.jobs.scheduling.running_quota import Shares, running
from windlass.jobs.scheduling.scoring import (
    NO_ANSWER,
    NO_BACKEND,
    NOWHERE_THERE,
    UNFIT,
    Load,
    score,
)
from windlass.jobs.storage.changes import apply
from windlass.jobs.storage.outbox import LEASE_SECONDS, Outbox
from windlass.jobs.storage.rows import to_job
from windlass.jobs.storage.store import WAKE_WORKLOADS
from windlass.jobs.storage.tables import jobs

BATCH = 50
# A job that fits no cluster now is looked at again after this long.
UNFIT_DELAY_MS = 2000
UNASSIGNED = (
    "No cluster is assigned to this project. An operator can assign one with "
    "`windlass clusters assign`."
)


class JobPlacer:
    """Places queued jobs, oldest first; two processes at once place different ones."""

    def __init__(
        self, database: Database, wake: Wake, workloads: Outbox, quotas: Quotas | None = None
    ):
        """`quotas` None: those of a new installation."""
        self._database = database
        self._wake = wake
        self._workloads = workloads
        self._quotas = quotas or Quotas(Settings().quotas)

    async def place(self, snapshot: ClusterSnapshot, load: Load, now: int) -> bool:
        """Places a batch, counting it into `load`; whether there may be more."""
        token = new_id("lease_")
        values = {"backends": snapshot.backends, "projects": snapshot.answering, "now": now}
        values["anyone"] = snapshot.is_shared
        async with self._database.begin() as connection:
            rows = (await connection.execute(_READY, values)).all()
            ready = [to_job(row) for row in rows]
            shares = await running(connection, self._quotas, ready)
            decided = [decide(job, snapshot, load, now, shares) for job in ready]
            changes = [(decision.job, change) for decision, change in decided]
            done = await apply(connection, changes, lease=token, lease_seconds=LEASE_SECONDS)
            await note(connection, [one for one, change in decided if change.job.cluster_id], now)
        if done.owed:
            reach("jobs.placed")
        self._workloads.hand(token, done.owed, {job.id: job for job in done.jobs})
        if done.owed:
            self._wake.touch(WAKE_WORKLOADS)
        return len(rows) == BATCH

    async def explain(self, snapshot: ClusterSnapshot) -> None:
        """Tells jobs that `place` does not even look at why they wait."""
        values = {
            "backends": snapshot.backends,
            "projects": snapshot.answering,
            "assigned": sorted(snapshot.assignments),
            "anyone": snapshot.is_shared or not snapshot.clusters,
        }
        async with self._database.begin() as connection:
            await connection.execute(_EXPLAIN, values)


def decide(
    job: Job, snapshot: ClusterSnapshot, load: Load, now: int, shares: Shares | None = None
) -> tuple[Decision, Change]:
    """Places a job where it suits best, and counts it; else says why it waits."""
    if shares is not None and (full := shares.full(job)):
        return Decision(job, ()), waiting(job, full, now + UNFIT_DELAY_MS)
    verdicts = score(job, snapshot, load)
    decision = Decision(job, tuple(verdicts))
    if not verdicts or not verdicts[0].fits:
        reason = verdicts[0].reason if len(verdicts) == 1 else UNFIT
        if not verdicts and (geography := snapshot.geography(job.project_id)):
            reason = f"{NOWHERE_THERE}{geography}"
        return decision, waiting(job, reason, now + UNFIT_DELAY_MS)
    chosen = next(one for one in snapshot.clusters if one.id == verdicts[0].cluster_id)
    load.add(job, chosen)
    if shares is not None:
        shares.add(job)
    place = None if chosen.is_machine else chosen.assigned[job.project_id].place
    return decision, placed(job, chosen.id, place)


def _unplaced() -> tuple[sa.ColumnElement[bool], ...]:
    # Literals, since a plan with parameters could not use the partial index.
    return (
        jobs.c.state == sa.literal_column(f"{JobState.QUEUED:d}"),
        jobs.c.cluster_id == sa.literal_column("''"),
    )


def _is_of(column: sa.Column[str], name: str) -> sa.ColumnElement[bool]:
    return column == sa.any_(sa.bindparam(name, type_=ARRAY(sa.Text)))


_ANYONE = sa.bindparam("anyone", type_=sa.Boolean)
_HAS_BACKEND = _is_of(jobs.c.backend, "backends")
_HAS_CLUSTER = sa.or_(_ANYONE, _is_of(jobs.c.project_id, "projects"))


def _explanation() -> sa.Update:
    reason = sa.case(
        (
            ~_HAS_CLUSTER,
            sa.case((_is_of(jobs.c.project_id, "assigned"), NO_ANSWER), else_=UNASSIGNED),
        ),
        else_=sa.func.concat(NO_BACKEND, jobs.c.backend),
    )
    queue = sa.func.jsonb_build_object("name", "", "position", 0, "reason", reason)
    return (
        jobs.update()
        .where(*_unplaced(), ~sa.and_(_HAS_BACKEND, _HAS_CLUSTER))
        .where(jobs.c.queue["reason"].astext != reason)
        .values(queue=queue)
    )


# Made once: building a statement costs as much as running this one.
_READY = (
    jobs.select()
    .where(*_unplaced(), _HAS_BACKEND, _HAS_CLUSTER, jobs.c.not_before_ms <= sa.bindparam("now"))
    .order_by(jobs.c.sequence)
    .limit(BATCH)
    .with_for_update(skip_locked=True)
)
_EXPLAIN = _explanation()
