"""Reasons why operations of full-parameter runs wait."""

from collections.abc import Awaitable, Callable

import sqlalchemy as sa

from windlass.core.db import Database
from windlass.tuning.seats.tables import seats
from windlass.tuning.storage.tables import operations, runs


class WaitingReasons:
    """Tells a client of its own run's place in line."""

    def __init__(
        self,
        database: Database,
        pod_reason: Callable[[str, str], Awaitable[str | None]],
        *,
        full_trainers: int,
    ):
        """`pod_reason` tells it of a pod, None where the operation needs none."""
        self._database = database
        self._pod_reason = pod_reason
        self._full_trainers = full_trainers

    async def of(self, project_id: str, operation_id: str) -> str:
        """Returns why an operation of a project waits for capacity; empty where it does not."""
        # First: a run that waits for its pod is claimed and given back in turn.
        why = await self._pod_reason(project_id, operation_id)
        return await self._here(project_id, operation_id) if why is None else why

    async def _here(self, project_id: str, operation_id: str) -> str:
        line = sa.and_(
            seats.c.lease_id == "",
            seats.c.workload == runs.c.base_model,
            seats.c.project_id == runs.c.project_id,
        )
        is_held = sa.func.coalesce(runs.c.lease_until > sa.func.now(), sa.false())
        query = (
            sa.select(is_held.label("is_held"), sa.func.coalesce(seats.c.reason, "").label("why"))
            .select_from(
                operations.join(runs, runs.c.id == operations.c.run_id).outerjoin(seats, line)
            )
            .where(
                operations.c.id == operation_id,
                operations.c.project_id == project_id,
                operations.c.state == "queued",
                operations.c.seq_id <= runs.c.next_seq,
                runs.c.is_full,
            )
            .order_by(seats.c.sequence)
            .limit(1)
        )
        async with self._database.autocommit() as connection:
            row = (await connection.execute(query)).first()
        if row is None:
            return ""
        if not row.is_held:
            return (
                f"All {self._full_trainers} trainers of all parameters are taken "
                "(tuning.full_parameter_trainers); it waits for one that rests."
            )
        return str(row.why)
