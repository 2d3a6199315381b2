"""Turns as rows, read and written under the lock of their lease."""

from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from windlass.core.clock import now
from windlass.tuning.seats.tables import leases, seats
from windlass.tuning_api.seating.turns import SeatTurn, TurnPolicy, TurnState, next_turn

Row = sa.Row[Any]


async def locked(connection: AsyncConnection, lease_id: str) -> Row:
    """A lease, whose turns nobody else changes in this transaction."""
    query = leases.select().where(leases.c.id == lease_id).with_for_update()
    return (await connection.execute(query)).one()


async def turns_of(connection: AsyncConnection, lease_id: str) -> list[SeatTurn]:
    """The turns of a lease's residents."""
    rows = await connection.execute(seats.select().where(seats.c.lease_id == lease_id))
    return [turn_of(row) for row in rows]


def turn_of(row: Row) -> SeatTurn:
    """The turn of a resident."""
    return SeatTurn(
        row.id, TurnState(row.turn), row.turn_project_id, row.asked_at, row.served_at
    )  # fmt: skip


async def grant(connection: AsyncConnection, lease: Row, policy: TurnPolicy) -> str:
    """Grants a locked lease to who comes next, where it is free; returns that seat or nothing."""
    chosen = next_turn(await turns_of(connection, lease.id), policy, lease.shares)
    if chosen is None:
        return ""
    values = {"turn": TurnState.RESTORING.value, "granted_at": now(), "asked_at": None}
    await connection.execute(seats.update().where(seats.c.id == chosen.seat_id).values(values))
    return chosen.seat_id
