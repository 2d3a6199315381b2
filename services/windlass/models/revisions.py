"""The order of all changes of names, which watchers follow."""

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from windlass.models.tables import models, stream


async def next_revision(connection: AsyncConnection) -> int:
    """The next revision; holds the stream's lock until the transaction ends.

    Take it before any other lock.
    """
    statement = insert(stream).values(name="models", revision=1)
    statement = statement.on_conflict_do_update(
        index_elements=["name"], set_={"revision": stream.c.revision + 1}
    )
    return int((await connection.execute(statement.returning(stream.c.revision))).scalar_one())


async def tell_again(connection: AsyncConnection, version_id: str) -> None:
    """Has watchers look at a version anew; grants, which are listed by revision, keep theirs."""
    own = sa.and_(models.c.version_id == version_id, models.c.grant_id == "", ~models.c.deleted)
    revision = await next_revision(connection)
    await connection.execute(models.update().where(own).values(revision=revision))
