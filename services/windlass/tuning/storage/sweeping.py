"""Queries of what ends by itself: gaps, runs that are over, results, checkpoints, sessions."""

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa

from windlass.core.clock import now_seconds
from windlass.core.db import Database
from windlass.core.db.leases import claim, held, released
from windlass.tuning.storage.log import QUEUED
from windlass.tuning.storage.tables import (
    checkpoints,
    loans,
    losses,
    operations,
    runs,
    sessions,
)

Row = sa.Row[Any]
AT_ONCE = 100
LEASE_SECONDS = 120.0
# A checkpoint that nobody finished writing.
WRITING_SECONDS = 86_400
# A session that nothing was heard of ends for good.
FORGOTTEN_SECONDS = 7 * 86_400

_DONE = operations.c.state == sa.literal_column("'done'")
_BODY_ALONE = sa.and_(
    operations.c.state == sa.literal_column("'expired'"),
    sa.or_(operations.c.body.is_not(None), operations.c.body_key != sa.literal_column("''")),
)
_REPLAYED = sa.exists().where(
    runs.c.id == operations.c.run_id,
    runs.c.state == "active",
    operations.c.place > runs.c.state_place,
)
_UNREADY = checkpoints.c.state != sa.literal_column("'ready'")
_EXPIRING = checkpoints.c.expires_at > sa.literal_column("0")


class SweepStore:
    """Rows of every project whose time has come."""

    def __init__(self, database: Database):
        self._database = database

    async def forget_sessions(self) -> None:
        """Ends sessions that were silent for long, and takes the runs of ended sessions away."""
        over = sa.exists().where(sessions.c.id == runs.c.session_id, sessions.c.end != "")
        waits = sa.exists().where(
            operations.c.run_id == runs.c.id, QUEUED, operations.c.seq_id <= runs.c.next_seq
        )
        async with self._database.begin() as connection:
            await connection.execute(
                sessions.update()
                .where(sessions.c.end == "")
                .where(sessions.c.heartbeat_at < now_seconds() - FORGOTTEN_SECONDS)
                .values(end="interrupted", detail="Nothing was heard of it.")
            )
            await connection.execute(
                runs.update().where(runs.c.state == "active", over, ~waits).values(state="deleted")
            )
            finished = sa.exists().where(sessions.c.id == losses.c.session_id, sessions.c.end != "")
            await connection.execute(losses.delete().where(finished))
            await connection.execute(loans.delete().where(loans.c.expires_at < now_seconds()))

    async def ended(self) -> Sequence[Row]:
        """Operations that wait for runs that are deleted or lost, with the state of each run."""
        query = (
            sa.select(operations.c.id, operations.c.body_key, runs.c.state)
            .join(runs, runs.c.id == operations.c.run_id)
            .where(QUEUED, runs.c.state.in_(["deleted", "lost"]))
            .limit(AT_ONCE)
        )
        return await self._read(query)

    async def stuck(self, before: int) -> Sequence[Row]:
        """Operations of runs whose next one has not come for long, of which none is due."""
        due = operations.alias("due")
        is_due = sa.exists().where(
            due.c.run_id == runs.c.id,
            due.c.state == sa.literal_column("'queued'"),
            due.c.seq_id <= runs.c.next_seq,
        )
        waiting = operations.alias("waiting")
        first = (
            sa.select(sa.func.min(waiting.c.created_at))
            .where(waiting.c.run_id == runs.c.id)
            .where(waiting.c.state == sa.literal_column("'queued'"))
            .scalar_subquery()
        )
        query = (
            sa.select(operations.c.id, operations.c.run_id, operations.c.seq_id)
            .join(runs, runs.c.id == operations.c.run_id)
            .where(QUEUED, runs.c.state == "active", ~is_due, first < before)
            .order_by(operations.c.run_id, operations.c.seq_id)
            .limit(AT_ONCE)
        )
        return await self._read(query)

    async def end(self, operation_ids: Sequence[str], result: bytes) -> None:
        """Writes one result for operations that still wait."""
        async with self._database.begin() as connection:
            await connection.execute(
                operations.update()
                .where(operations.c.id.in_(operation_ids), QUEUED)
                .values(state="done", result=result, finished_at=now_seconds())
            )

    async def pass_gap(self, run_id: str, seq_id: int, operation_ids: Sequence[str],
                       result: bytes) -> bool:  # fmt: skip
        """Ends operations that wait in vain, so that the run goes on after them.

        Returns False if what was missing has come.
        """
        async with self._database.begin() as connection:
            query = sa.select(runs.c.next_seq).where(runs.c.id == run_id).with_for_update()
            next_seq = (await connection.execute(query)).scalar_one_or_none()
            come = sa.select(sa.literal(1)).where(
                operations.c.run_id == run_id, QUEUED, operations.c.seq_id <= next_seq
            )
            if next_seq is None or (await connection.execute(come)).first() is not None:
                return False
            await connection.execute(
                runs.update()
                .where(runs.c.id == run_id)
                .values(next_seq=sa.func.greatest(runs.c.next_seq, seq_id + 1))
            )
            await connection.execute(
                operations.update()
                .where(operations.c.id.in_(operation_ids), QUEUED)
                .values(state="done", result=result, finished_at=now_seconds())
            )
        return True

    async def claim_results(self, before: int) -> tuple[str, Sequence[Row]]:
        """Leases results that are no longer kept."""
        return await self._claim(sa.and_(_DONE, operations.c.finished_at < before))

    async def claim_bodies(self, before: int) -> tuple[str, Sequence[Row]]:
        """Leases bodies without results of which no replay needs anything any more: what was
        carried out for a run is kept until it was done `before`.
        """
        over = sa.or_(operations.c.run_id == "", operations.c.finished_at < before)
        return await self._claim(sa.and_(_BODY_ALONE, ~_REPLAYED, over))

    async def _claim(self, where: sa.ColumnElement[bool]) -> tuple[str, Sequence[Row]]:
        return await claim(
            self._database,
            operations,
            where,
            limit=AT_ONCE,
            seconds=LEASE_SECONDS,
            order=operations.c.finished_at,
        )

    async def expire_results(self, operation_ids: Sequence[str], token: str) -> None:
        """Forgets what was answered."""
        await self._change(operation_ids, token, state="expired", result=None, result_key="")

    async def forget_bodies(self, operation_ids: Sequence[str], token: str) -> None:
        """Forgets what was asked; that it was, stays."""
        await self._change(operation_ids, token, body=None, body_key="", body_bytes=0)

    async def _change(self, operation_ids: Sequence[str], token: str, **values: Any) -> None:
        async with self._database.begin() as connection:
            await connection.execute(
                operations.update()
                .where(operations.c.id.in_(operation_ids), held(operations, token))
                .values(**values, **released())
            )

    async def claim_checkpoints(self) -> tuple[str, Sequence[Row]]:
        """Leases checkpoints to be removed, after those have been marked whose time has come."""
        now = now_seconds()
        over = sa.exists().where(runs.c.id == checkpoints.c.run_id, runs.c.state == "deleted")
        async with self._database.begin() as connection:
            await connection.execute(
                checkpoints.update()
                .where(_EXPIRING, checkpoints.c.expires_at <= now, ~_UNREADY)
                .values(state="deleting")
            )
            await connection.execute(
                checkpoints.update()
                .where(checkpoints.c.state == sa.literal_column("'ready'"))
                .where(checkpoints.c.name == "", over)
                .values(state="deleting")
            )
        stale = sa.or_(
            checkpoints.c.state == "deleting", checkpoints.c.created_at < now - WRITING_SECONDS
        )
        # Its run goes on from it: the name may be gone, what it names is not.
        needed = sa.exists().where(
            runs.c.state_checkpoint_id == checkpoints.c.id, runs.c.state == "active"
        )
        return await claim(
            self._database,
            checkpoints,
            sa.and_(_UNREADY, stale, ~needed),
            limit=AT_ONCE,
            seconds=LEASE_SECONDS,
        )

    async def remove_checkpoint(self, checkpoint_id: str, token: str) -> None:
        """Forgets a checkpoint whose objects are gone."""
        async with self._database.begin() as connection:
            await connection.execute(
                checkpoints.delete().where(
                    checkpoints.c.id == checkpoint_id, held(checkpoints, token)
                )
            )

    async def _read(self, query: sa.Select[Any]) -> Sequence[Row]:
        async with self._database.autocommit() as connection:
            return list(await connection.execute(query))
