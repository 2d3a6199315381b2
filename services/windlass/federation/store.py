"""Every query on federated objects."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, fields
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert

from windlass.core.db import Database
from windlass.core.db.leases import claim, held, no_rows, released
from windlass.core.db.wake import Wake
from windlass.core.errors import ResourceExhausted
from windlass.federation.domain import NOTE, Federated, ObjectState
from windlass.federation.tables import objects

WAKE_WAITING = "federation waiting"
WAKE_OWED = "federation owed"
LEASE_SECONDS = 30.0
BATCH = 50
# Of one cluster, at once.
MAX_OBJECTS = 10_000

Decide = Callable[[Federated], Federated]
_FIELDS = tuple(one.name for one in fields(Federated))
# Literals, since a plan with parameters could not use the partial indexes.
_WAITS = objects.c.state == sa.literal_column(f"{ObjectState.WAITING:d}")
_OWED = objects.c.told < objects.c.revision


class FederationStore:
    """Objects of every cluster."""

    def __init__(self, database: Database, wake: Wake):
        self._database = database
        self._wake = wake
        self.is_empty = no_rows(database, objects.c.id != "")

    async def tell(self, new: Federated, decide: Decide) -> None:
        """Stores an object that is new, or changes the one of its cluster and uid.

        Raises ResourceExhausted for one too many of a cluster.
        """
        ours = objects.c.cluster_id == new.cluster_id
        async with self._database.begin() as connection:
            lock = sa.func.pg_advisory_xact_lock(sa.func.hashtextextended(new.cluster_id, 0))
            await connection.execute(sa.select(lock))
            query = objects.select().where(ours, objects.c.uid == new.uid).with_for_update()
            row = (await connection.execute(query)).first()
            if row is not None:
                before = _of(row)
                after = decide(before)
                if after != before:
                    await connection.execute(_update(after))
            else:
                count = sa.select(sa.func.count()).where(ours)
                if (await connection.execute(count)).scalar_one() >= MAX_OBJECTS:
                    raise ResourceExhausted(
                        f"A cluster may federate at most {MAX_OBJECTS} objects."
                    )
                after = decide(new)
                await connection.execute(insert(objects).values(**asdict(after)))
        self._touch(after)

    async def change(self, object_id: str, decide: Decide) -> None:
        """Applies a decision under the row's lock; nothing to one that is gone."""
        async with self._database.begin() as connection:
            query = objects.select().where(objects.c.id == object_id).with_for_update()
            row = (await connection.execute(query)).first()
            if row is None:
                return
            before = _of(row)
            after = decide(before)
            if after == before:
                return
            await connection.execute(_update(after))
        self._touch(after)

    async def find(self, object_ids: Sequence[str]) -> dict[str, Federated]:
        """Objects by id, or by that of their notes."""
        ids = {one.removeprefix(NOTE) for one in object_ids}
        query = objects.select().where(objects.c.id.in_(ids))
        async with self._database.autocommit() as connection:
            return {row.id: _of(row) for row in await connection.execute(query)}

    async def waiting(self, now: int) -> Sequence[Federated]:
        """Some that want a cluster, the oldest first."""
        query = (
            objects.select()
            .where(_WAITS, objects.c.not_before_ms <= now)
            .order_by(objects.c.created_at_ms)
            .limit(BATCH)
        )
        async with self._database.autocommit() as connection:
            return [_of(row) for row in await connection.execute(query)]

    async def workers(self) -> Sequence[str]:
        """Clusters that run something, or may."""
        held_there = objects.c.state.in_((ObjectState.PLACED, ObjectState.STOPPING))
        query = sa.select(objects.c.worker).where(held_there).distinct()
        async with self._database.autocommit() as connection:
            return (await connection.execute(query)).scalars().all()

    async def held_by(self, clusters: Sequence[str]) -> Sequence[str]:
        """Ids of some objects that these clusters run, or may."""
        held_there = objects.c.state.in_((ObjectState.PLACED, ObjectState.STOPPING))
        query = sa.select(objects.c.id).where(objects.c.worker.in_(clusters), held_there)
        async with self._database.autocommit() as connection:
            return (await connection.execute(query.limit(BATCH))).scalars().all()

    async def owed(self) -> tuple[str, Sequence[Federated]]:
        """Leases some of which clusters have not heard the latest."""
        token, rows = await claim(
            self._database, objects, _OWED, limit=BATCH, seconds=LEASE_SECONDS
        )
        return token, [_of(row) for row in rows]

    async def mark(self, token: str, row: Federated) -> None:
        """Notes that a leased object's clusters know of this revision; of a gone one, forgets it.

        Nothing happens when the lease is another's by now.
        """
        mine = sa.and_(objects.c.id == row.id, held(objects, token))
        statement: Any = objects.update().where(mine).values(told=row.revision, **released())
        if row.state is ObjectState.GONE:
            statement = objects.delete().where(mine)
        async with self._database.begin() as connection:
            await connection.execute(statement)

    def _touch(self, row: Federated) -> None:
        if row.told < row.revision:
            self._wake.touch(WAKE_OWED)
        if row.state is ObjectState.WAITING and not row.not_before_ms:
            self._wake.touch(WAKE_WAITING)


def _of(row: Any) -> Federated:
    values = {name: getattr(row, name) for name in _FIELDS}
    return Federated(**values | {"state": ObjectState(row.state)})


def _update(row: Federated) -> sa.Update:
    values = asdict(row)
    # Written once a cluster has been told.
    del values["told"]
    return objects.update().where(objects.c.id == row.id).values(**values)
