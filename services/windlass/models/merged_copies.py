"""Complete weights that a job has merged of its adapter, as the adapter's row knows them.

All of it happens under the stream's lock, so that it does not matter which is registered first.
"""

from dataclasses import asdict, replace

import sqlalchemy as sa
from msgspec import to_builtins
from sqlalchemy.ext.asyncio import AsyncConnection

from windlass.models.domain import Kind, Version, VersionState
from windlass.models.revisions import tell_again
from windlass.models.tables import versions


async def tell_adapter(connection: AsyncConnection, adapter: Version) -> None:
    """Tells an adapter, which was just registered, of a merged copy that is there already."""
    columns = versions.c
    query = sa.select(columns.id, columns.footprint, columns.formats, columns.preset).where(
        columns.merged_of == adapter.source, columns.state == VersionState.READY
    )
    row = None
    if adapter.kind is Kind.ADAPTER:
        row = (await connection.execute(query)).first()
    if row is not None:
        await connection.execute(
            versions.update()
            .where(versions.c.id == adapter.id)
            .values(
                merged_version_id=row.id,
                footprint=row.footprint,
                formats=row.formats,
                preset=row.preset,
            )
        )


async def note_copy(connection: AsyncConnection, copy: Version) -> None:
    """Tells the adapter of its merged copy, if it is registered already."""
    if not copy.merged_of:
        return
    # An engine that runs the copy for it needs as much.
    shape = {
        "footprint": copy.footprint and asdict(copy.footprint),
        "formats": to_builtins(copy.formats),
        "preset": copy.preset and to_builtins(copy.preset),
    }
    found = await connection.execute(
        versions.update()
        .where(versions.c.source == copy.merged_of, versions.c.kind == Kind.ADAPTER)
        .values(merged_version_id=copy.id, **shape)
        .returning(versions.c.id)
    )
    for row in found.all():
        await tell_again(connection, row.id)


async def told_of(connection: AsyncConnection, copy: Version, merged_of: str) -> Version:
    """A copy that is registered again, with the adapter that a release before did not say."""
    if copy.merged_of or not merged_of or copy.state is not VersionState.READY:
        return copy
    copy = replace(copy, merged_of=merged_of)
    mine = versions.update().where(versions.c.id == copy.id)
    await connection.execute(mine.values(merged_of=merged_of))
    await note_copy(connection, copy)
    return copy


async def forget_copy(connection: AsyncConnection, copy_id: str) -> None:
    """Tells the adapter that its merged copy is no more."""
    found = await connection.execute(
        versions.update()
        .where(versions.c.merged_version_id == copy_id)
        .values(merged_version_id="")
        .returning(versions.c.id)
    )
    for row in found.all():
        await tell_again(connection, row.id)
