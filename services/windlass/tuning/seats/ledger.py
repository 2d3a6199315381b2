"""Queries of the ledger: leases of a machine, and who is admitted to them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from windlass.core.clock import now, now_seconds
from windlass.core.db import Database
from windlass.core.db.leases import claim, held
from windlass.core.ids import new_id
from windlass.tuning.seats.grants import grant
from windlass.tuning.seats.tables import leases, seats
from windlass.tuning_api.seating.admission import Demand, Lease, Resident, admit, never_fits
from windlass.tuning_api.seating.turns import TurnPolicy

Row = sa.Row[Any]
# A server renews its seats thrice in this time.
LEASE_SECONDS = 30.0
# Of a sentence that has the numbers of many devices.
MAX_REASON = 2000
_HELD_ON = sa.func.now() + sa.func.make_interval(0, 0, 0, 0, 0, 0, LEASE_SECONDS)


@dataclass(frozen=True, slots=True)
class SeatWish:
    """A workload that asks for a seat, and what it takes."""

    workload: str
    project_id: str
    demand: Demand
    role: str = "trainer"
    # The run or the session that it is for; empty: for many.
    owner: str = ""


class SeatLedger:
    """Leases and seats of one machine, or of one lease of a cluster, whichever server made them."""

    def __init__(
        self, database: Database, host: str, holder: str, *, takes_turns: bool, policy: TurnPolicy
    ):
        self._database = database
        self._host = host
        self._holder = holder
        # Those that take turns free the device for each other.
        self._takes_turns = takes_turns
        self._policy = policy

    async def declare(self, found: Sequence[Mapping[str, Any]]) -> None:
        """Writes the devices of the machine; one that is gone stays while somebody is on it."""
        async with self._database.begin() as connection:
            for one in found:
                row = {"id": new_id("lease_"), "host": self._host, **one}
                statement = insert(leases).values(row)
                update = {name: statement.excluded[name] for name in one if name != "device"}
                await connection.execute(
                    statement.on_conflict_do_update(
                        index_elements=[leases.c.host, leases.c.device], set_=update
                    )
                )
            taken = sa.exists().where(seats.c.lease_id == leases.c.id)
            names = [one["device"] for one in found]
            await connection.execute(
                leases.delete().where(
                    leases.c.host == self._host, leases.c.device.not_in(names), ~taken
                )
            )

    async def never_fits(self, demand: Demand) -> str:
        """Says why no device of the machine, even an empty one, has room for this; or nothing."""
        async with self._database.autocommit() as connection:
            return never_fits(await self._leases(connection), demand)

    async def ask(self, wish: SeatWish) -> tuple[str, str]:
        """Puts somebody in line for a seat; returns the seat's id and the token that holds it."""
        seat_id, token, demand = new_id("seat_"), new_id("lease_"), wish.demand
        row = {
            "id": seat_id, "host": self._host, "project_id": wish.project_id,
            "workload": wish.workload, "role": wish.role, "owner": wish.owner,
            "device_bytes": demand.device_bytes,
            "host_bytes": demand.host_bytes, "residue_bytes": demand.residue_bytes,
            "created_at": now_seconds(), "served_at": now(), "holder": self._holder,
            "lease_owner": token, "lease_until": _HELD_ON,
        }  # fmt: skip
        async with self._database.begin() as connection:
            await connection.execute(seats.insert().values(row))
        return seat_id, token

    async def admit(self, seat_id: str, token: str) -> tuple[Row | None, str]:
        """Admits whoever is in line, in one transaction; returns its lease, or why it waits.

        First come, first served, of those that wait for this machine. Raises LookupError for one
        that is no longer held.
        """
        async with self._database.begin() as connection:
            there = await self._leases(connection, locked=True)
            rows = (
                await connection.execute(
                    seats.select().where(seats.c.host == self._host).order_by(seats.c.sequence)
                )
            ).all()
            own = next((one for one in rows if (one.id, one.lease_owner) == (seat_id, token)), None)
            if own is None:
                raise LookupError(seat_id)
            lease, reason = self._decided(there, rows, own)
            values = {"lease_id": lease.id if lease else "", "reason": reason[:MAX_REASON]}
            await connection.execute(seats.update().where(seats.c.id == seat_id).values(values))
            if lease is None:
                return None, reason
            query = leases.select().where(leases.c.id == lease.id)
            return (await connection.execute(query)).one(), ""

    def _decided(
        self, there: Sequence[Lease], rows: Sequence[Row], own: Row
    ) -> tuple[Lease | None, str]:
        before = [one for one in rows if not one.lease_id and one.sequence < own.sequence]
        residents = [Resident(one.lease_id, demand_of(one)) for one in rows if one.lease_id]
        lease, reason = admit(there, residents, demand_of(own), takes_turns=self._takes_turns)
        if before:
            behind = f"{len(before)} {'waits' if len(before) == 1 else 'wait'} for room before it."
            return None, f"{reason} {behind}".strip()
        return lease, reason

    async def attach(self, seat_id: str, token: str, process: str) -> bool:
        """Notes the process that sits there; returns False where the seat is no longer held."""
        statement = (
            seats.update()
            .where(seats.c.id == seat_id, held(seats, token))
            .values(process=process)
        )  # fmt: skip
        async with self._database.autocommit() as connection:
            return bool((await connection.execute(statement)).rowcount)

    async def renew(self, seat_id: str, token: str) -> bool:
        """Keeps a seat; returns False where it is no longer held."""
        statement = (
            seats.update()
            .where(seats.c.id == seat_id, held(seats, token))
            .values(lease_until=_HELD_ON)
        )
        async with self._database.autocommit() as connection:
            return bool((await connection.execute(statement)).rowcount)

    async def release(self, seat_id: str, token: str) -> None:
        """Gives a seat back, and its turn with it; what is given back stays so."""
        async with self._database.begin() as connection:
            # In the order of admission: leases first.
            query = (
                leases.select()
                .where(leases.c.id.in_(sa.select(seats.c.lease_id).where(seats.c.id == seat_id)))
                .with_for_update()
            )
            lease = (await connection.execute(query)).one_or_none()
            await connection.execute(
                seats.delete().where(seats.c.id == seat_id, held(seats, token))
            )
            if lease is not None:
                await grant(connection, lease, self._policy)

    async def take_over(self, dead_holders: Sequence[str]) -> tuple[str, Sequence[Row]]:
        """Takes seats of this machine whose servers have died, or no longer renew them."""
        async with self._database.begin() as connection:
            await connection.execute(
                seats.update()
                .where(seats.c.host == self._host, seats.c.holder.in_(dead_holders))
                .values(lease_until=None)
            )
        return await claim(
            self._database, seats, seats.c.host == self._host, limit=64, seconds=LEASE_SECONDS
        )

    async def holders(self) -> set[str]:
        """The servers that hold seats of this machine."""
        query = sa.select(seats.c.holder).where(seats.c.host == self._host).distinct()
        async with self._database.autocommit() as connection:
            return set(await connection.scalars(query))

    async def _leases(self, connection: AsyncConnection, *, locked: bool = False) -> list[Lease]:
        query = leases.select().where(leases.c.host == self._host).order_by(leases.c.id)
        query = query.with_for_update() if locked else query
        return [
            Lease(
                one.id, one.device, one.device_bytes, one.host_bytes, one.max_residents, one.devices
            )
            for one in await connection.execute(query)
        ]


def demand_of(row: Row) -> Demand:
    """Bytes that a seat takes."""
    return Demand(row.device_bytes, row.host_bytes, row.residue_bytes)
