"""Queries of the pods that train and sample."""

from collections.abc import Mapping, Sequence
from typing import Any

import sqlalchemy as sa

from windlass.core.clock import now_seconds
from windlass.core.db import Database
from windlass.core.db.leases import held
from windlass.tuning.pods.tables import pods
from windlass.tuning.storage.log import QUEUED
from windlass.tuning.storage.tables import operations

Row = sa.Row[Any]
RUNNING, DELETED = "running", "deleted"
# A server renews its pods thrice in this time.
LEASE_SECONDS = 30.0
_HELD_ON = sa.func.now() + sa.func.make_interval(0, 0, 0, 0, 0, 0, LEASE_SECONDS)
_RUNS = pods.c.desired == RUNNING
_UNTOLD = pods.c.put_generation < pods.c.generation
_AT_ONCE = 64


class PodStore:
    """Pods of every project; `holder` is the token of this server."""

    def __init__(self, database: Database, holder: str):
        self._database = database
        self._holder = holder

    async def begin(self, values: Mapping[str, Any]) -> Row:
        """Writes a pod that a cluster is to run."""
        row = {
            **values, "desired": RUNNING, "generation": 1, "put_generation": 0,
            "created_at": now_seconds(), "urls_at": now_seconds(),
            "lease_owner": self._holder, "lease_until": _HELD_ON,
        }  # fmt: skip
        async with self._database.begin() as connection:
            statement = pods.insert().values(row).returning(pods)
            made: Row = (await connection.execute(statement)).one()
            return made

    async def end(self, pod_id: str) -> Row | None:
        """Has a pod deleted; returns None where its row has gone."""
        async with self._database.begin() as connection:
            await connection.execute(_ended().where(pods.c.id == pod_id))
            found = await connection.execute(pods.select().where(pods.c.id == pod_id))
            return found.one_or_none()

    async def renew(self) -> None:
        """Keeps the pods of this server."""
        statement = pods.update().where(held(pods, self._holder)).values(lease_until=_HELD_ON)
        async with self._database.autocommit() as connection:
            await connection.execute(statement)

    async def end_orphans(self) -> None:
        """Has pods deleted whose servers have died."""
        async with self._database.begin() as connection:
            await connection.execute(_ended().where(pods.c.lease_until < sa.func.now()))

    async def refresh(self, before: int) -> None:
        """Asks for fresh URLs of what runs and was given its own before a time."""
        statement = (
            pods.update()
            .where(_RUNS, held(pods, self._holder), pods.c.urls_at < before)
            .values(urls_at=now_seconds(), generation=pods.c.generation + 1)
        )
        async with self._database.begin() as connection:
            await connection.execute(statement)

    async def untold(self) -> Sequence[Row]:
        """Pods that their clusters do not know as they should be."""
        query = pods.select().where(_UNTOLD).order_by(pods.c.created_at).limit(_AT_ONCE)
        async with self._database.autocommit() as connection:
            return (await connection.execute(query)).all()

    async def awaited(self, project_id: str, operation_id: str) -> str | None:
        """The pod of the run, or of the session's sampler, that is to carry an operation out."""
        session_id = sa.func.split_part(operations.c.sampler_id, ":", 1)
        query = (
            sa.select(pods.c.id)
            .join(operations, pods.c.owner.in_((operations.c.run_id, session_id)))
            .where(_RUNS, pods.c.project_id == project_id)
            .where(operations.c.id == operation_id, operations.c.project_id == project_id, QUEUED)
            # A replica that waits is no reason while an older one serves.
            .order_by(pods.c.created_at)
            .limit(1)
        )
        async with self._database.autocommit() as connection:
            found: str | None = await connection.scalar(query)
            return found

    async def mark_told(self, pod: Row) -> None:
        """Notes that the cluster knows a generation; it sees to an end by itself."""
        same = pods.c.id == pod.id, pods.c.generation == pod.generation
        async with self._database.begin() as connection:
            if pod.desired == DELETED:
                await connection.execute(pods.delete().where(*same))
                return
            await connection.execute(
                pods.update().where(*same).values(put_generation=pod.generation)
            )


def _ended() -> sa.Update:
    return (
        pods.update()
        .where(_RUNS)
        .values(desired=DELETED, generation=pods.c.generation + 1)
    )  # fmt: skip
