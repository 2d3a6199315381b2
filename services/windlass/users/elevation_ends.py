"""The end of requests, and of roles that were given on request, by changes made elsewhere."""

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from windlass.core.clock import now_seconds
from windlass.users.tables import elevations


async def withdraw_requests(connection: AsyncConnection, role_id: str) -> None:
    """Withdraws what is pending of a role that changes: approvers saw another one."""
    await close_elevations(
        connection, elevations.c.role_id == role_id, elevations.c.state == "pending"
    )


async def close_elevations(connection: AsyncConnection, *where: sa.ColumnElement[bool]) -> None:
    """Withdraws what is pending, and ends what was approved, where nothing is left of it."""
    table, now = elevations.c, now_seconds()
    pending = sa.and_(table.state == "pending", table.expires_at > now)
    approved = sa.and_(table.state == "approved", table.ends_at > now)
    state = sa.case((table.state == "pending", "withdrawn"), else_="ended")
    await connection.execute(
        elevations.update()
        .where(*where, sa.or_(pending, approved))
        .values(state=state, closed_at=now)
    )
