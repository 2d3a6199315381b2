"""The root key in the database: one key, sealed by each of its master keys."""

from collections.abc import Sequence
from dataclasses import dataclass

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from windlass.core.clock import now_seconds
from windlass.core.db import Database, metadata

root_keys = sa.Table(
    "core_root_keys",
    metadata,
    # 1 is always there and is made once: an installation has one root key.
    sa.Column("id", sa.SmallInteger, primary_key=True),
    sa.Column("wrapped", sa.Text, nullable=False),
    sa.Column("master_key_id", sa.Text, nullable=False, unique=True),
    sa.Column("created_at", sa.BigInteger, nullable=False),
)
_FIRST = root_keys.c.id == 1


@dataclass(frozen=True, slots=True)
class Seal:
    """The root key as one master key sealed it."""

    master_key_id: str
    wrapped: str
    created_at: int


class SealStore:
    """Every query on the seals of the root key."""

    def __init__(self, database: Database):
        self._database = database

    async def all(self) -> Sequence[Seal]:
        """Return the seals, oldest first; none before the first start."""
        query = root_keys.select().order_by(root_keys.c.id)
        async with self._database.autocommit() as connection:
            rows = await connection.execute(query)
            return [Seal(row.master_key_id, row.wrapped, row.created_at) for row in rows]

    async def make(self, master_key_id: str, wrapped: str) -> None:
        """Store the first seal, unless another process did."""
        row = _row(1, master_key_id, wrapped)
        async with self._database.begin() as connection:
            await connection.execute(insert(root_keys).values(row).on_conflict_do_nothing())

    async def put(self, master_key_id: str, wrapped: str) -> None:
        """Store a master key's seal beside the others, in place of its former one."""
        async with self._database.begin() as connection:
            await _take_turn(connection)
            newest = (await connection.execute(sa.select(sa.func.max(root_keys.c.id)))).scalar_one()
            row = _row(newest + 1, master_key_id, wrapped)
            changed = {name: row[name] for name in ("wrapped", "created_at")}
            await connection.execute(
                insert(root_keys)
                .values(row)
                .on_conflict_do_update(index_elements=["master_key_id"], set_=changed)
            )

    async def keep_only(self, seal: Seal) -> bool:
        """Remove all seals but one; False, and nothing changes, if that one changed meanwhile."""
        own = sa.and_(
            root_keys.c.master_key_id == seal.master_key_id, root_keys.c.wrapped == seal.wrapped
        )
        async with self._database.begin() as connection:
            await _take_turn(connection)
            found = (await connection.execute(sa.select(root_keys.c.id).where(own))).first()
            if found is None:
                return False
            await connection.execute(root_keys.delete().where(root_keys.c.id != found.id))
            await connection.execute(root_keys.update().values(id=1))
        return True


async def _take_turn(connection: AsyncConnection) -> None:
    await connection.execute(sa.select(root_keys.c.id).where(_FIRST).with_for_update())


def _row(number: int, master_key_id: str, wrapped: str) -> dict[str, int | str]:
    return {
        "id": number,
        "wrapped": wrapped,
        "master_key_id": master_key_id,
        "created_at": now_seconds(),
    }
