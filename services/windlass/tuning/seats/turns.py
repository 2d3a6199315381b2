"""Queries of turns: who asks for one, and who goes from one state to the next."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from windlass.core.clock import now
from windlass.core.db import Database
from windlass.core.db.leases import held
from windlass.tuning.seats.grants import grant, locked, turns_of
from windlass.tuning.seats.tables import leases, seats
from windlass.tuning_api.seating.turns import TurnPolicy, TurnState, charged, joined

Row = sa.Row[Any]


class SeatLost(Exception):
    """The seat is no longer held by who asks: whatever sits there has to end."""


@dataclass(frozen=True, slots=True)
class SeatStanding:
    """The turn of a seat, and who waits beside it."""

    turn: TurnState
    # Whether it asks for a turn, and when its last one began.
    has_asked: bool
    granted_at: float
    # Of the project that its turn is for, where weights count.
    weight: float
    # For a turn on its lease, and for room on its machine.
    others_wait: bool
    room_is_wanted: bool


class TurnStore:
    """Turns of leases; each change is one transaction under the lease's lock."""

    def __init__(self, database: Database, policy: TurnPolicy, weights: Mapping[str, float]):
        self._database = database
        self._policy = policy
        self._weights = weights

    async def standing(self, seat_id: str, token: str) -> SeatStanding:
        """Reads where a seat stands; raises SeatLost."""
        other = seats.alias()
        waits = sa.exists().where(
            other.c.lease_id == seats.c.lease_id, other.c.id != seats.c.id,
            other.c.asked_at.is_not(None),
        )  # fmt: skip
        # Who was just asked for may be let in at once.
        wanted = sa.exists().where(
            other.c.host == seats.c.host, other.c.lease_id == "", other.c.reason != ""
        )
        query = sa.select(
            seats.c.turn, seats.c.turn_project_id, seats.c.asked_at, seats.c.granted_at,
            waits.label("waits"), wanted.label("wanted"),
        ).where(seats.c.id == seat_id, held(seats, token))  # fmt: skip
        async with self._database.autocommit() as connection:
            row = (await connection.execute(query)).one_or_none()
        if row is None:
            raise SeatLost(seat_id)
        return SeatStanding(
            TurnState(row.turn),
            row.asked_at is not None,
            row.granted_at,
            self._weight(row.turn_project_id) if self._policy is TurnPolicy.WEIGHTED else 1.0,
            row.waits,
            row.wanted,
        )

    async def ask(self, lease_id: str, seat_id: str, token: str, project_id: str) -> None:
        """Puts a parked seat in line, and grants it the device where that is free.

        Who waits already keeps its place. Raises SeatLost.
        """
        async with self._database.begin() as connection:
            lease = await locked(connection, lease_id)
            there = await turns_of(connection, lease_id)
            own = next((one for one in there if one.seat_id == seat_id), None)
            if own is None:
                raise SeatLost(seat_id)
            if own.state is not TurnState.PARKED or own.waits:
                return
            values = {"asked_at": now(), "turn_project_id": project_id}
            await self._set(connection, seat_id, token, values)
            present = {
                one.project_id for one in there if one.waits or one.state is not TurnState.PARKED
            }
            shares = joined(lease.shares, project_id, present)
            await connection.execute(_shared(lease_id, shares))
            await grant(connection, await locked(connection, lease_id), self._policy)

    async def move(self, seat_id: str, token: str, turn: TurnState) -> None:
        """Notes what a seat that has the device does with it; raises SeatLost."""
        values: dict[str, Any] = {"turn": turn.value}
        if turn is TurnState.ACTIVE:
            # What brought it back is not of its turn.
            values["granted_at"] = now()
        async with self._database.begin() as connection:
            await self._set(connection, seat_id, token, values)

    async def leave(self, lease_id: str, seat_id: str, token: str) -> None:
        """Ends the turn of a seat that is parked now, and grants the next. Raises SeatLost."""
        async with self._database.begin() as connection:
            lease = await locked(connection, lease_id)
            query = seats.select().where(seats.c.id == seat_id)
            row = (await connection.execute(query)).one_or_none()
            if row is None:
                raise SeatLost(seat_id)
            at, project = now(), row.turn_project_id
            values = {
                "turn": TurnState.PARKED.value, "served_at": at, "switches": row.switches + 1,
            }  # fmt: skip
            await self._set(connection, seat_id, token, values)
            seconds = max(at - row.granted_at, 0.0)
            shares = charged(lease.shares, project, seconds, self._weight(project))
            await connection.execute(_shared(lease_id, shares))
            await grant(connection, await locked(connection, lease_id), self._policy)

    def _weight(self, project_id: str) -> float:
        return self._weights.get(project_id, 1.0)

    async def _set(
        self, connection: Any, seat_id: str, token: str, values: Mapping[str, Any]
    ) -> None:
        statement = seats.update().where(seats.c.id == seat_id, held(seats, token)).values(values)
        if not (await connection.execute(statement)).rowcount:
            raise SeatLost(seat_id)


def _shared(lease_id: str, shares: Mapping[str, float]) -> sa.Update:
    return leases.update().where(leases.c.id == lease_id).values(shares=dict(shares))
