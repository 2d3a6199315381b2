"""Turns whose writes fail: the device goes on to the next all the same, and nobody parks twice."""

import asyncio
import os
from collections.abc import AsyncIterator, Coroutine
from typing import Any

import pytest
from tests.support.waiting import PATIENCE

from windlass.core.db import Database
from windlass.core.db.wake import Wake
from windlass.tuning.seats import holding
from windlass.tuning.seats.holding import TurnTaking
from windlass.tuning.seats.identity import identity
from windlass.tuning.seats.ledger import SeatLedger
from windlass.tuning.seats.parking import ApplicationParking
from windlass.tuning.seats.seating import LedgerSeating
from windlass.tuning.seats.turns import TurnStore
from windlass.tuning_api.seating.admission import Demand
from windlass.tuning_api.seating.turns import TurnPatience, TurnPolicy, TurnState
from windlass.tuning_api.trainers.seats import SeatedWorkload

DEVICE = {
    "device": "gpu-0", "device_bytes": 2**30, "host_bytes": 2**30, "max_residents": 8,
    "devices": 1, "project_id": "", "queue": "",
}  # fmt: skip


class Resident:
    """A process that frees its device once, as tensors that are gone cannot be parked again."""

    pid = os.getpid()

    def __init__(self) -> None:
        self.did: list[str] = []

    async def park(self) -> int:
        self.did.append("park")
        return 1

    async def restore(self) -> None:
        self.did.append("restore")

    async def end(self) -> None:
        self.did.append("end")


class InterruptedStore(TurnStore):
    """Writes what it is asked, or nothing, and fails: its connection breaks once in each place."""

    def __init__(self, database: Database, broken: set[str], *, is_written: bool):
        super().__init__(database, TurnPolicy.FIFO, {})
        self.broken, self.is_written = broken, is_written

    async def move(self, seat_id: str, token: str, turn: TurnState) -> None:
        await self._broken(turn.value, super().move(seat_id, token, turn))

    async def leave(self, lease_id: str, seat_id: str, token: str) -> None:
        await self._broken("leave", super().leave(lease_id, seat_id, token))

    async def _broken(self, place: str, work: Coroutine[Any, Any, None]) -> None:
        is_broken = place in self.broken
        self.broken.discard(place)
        if is_broken and not self.is_written:
            work.close()
        else:
            await work
        if is_broken:
            raise ConnectionResetError(place)


@pytest.fixture
async def database(database_url: str) -> AsyncIterator[Database]:
    made = Database(database_url)
    yield made
    await made.close()


@pytest.mark.parametrize("is_written", [True, False])
@pytest.mark.parametrize("place", ["parking", "leave", "active"])
async def test_a_write_that_fails_leaves_nobody_on_the_device(
    database: Database,
    database_url: str,
    monkeypatch: pytest.MonkeyPatch,
    place: str,
    is_written: bool,
) -> None:
    monkeypatch.setattr(holding, "LOOK_SECONDS", 0.05)
    ledger = SeatLedger(
        database, "node", identity(os.getpid()), takes_turns=True, policy=TurnPolicy.FIFO
    )
    await ledger.declare([DEVICE])
    store = InterruptedStore(database, set(), is_written=is_written)
    taking = TurnTaking(store, True, ApplicationParking(), TurnPatience(1, 0), 5, 5, 5)
    seating = LedgerSeating(
        ledger, taking, Wake(database_url), lambda _: Demand(2**30, 2**20), lambda _: {}
    )
    found = [await seating.take(SeatedWorkload(name), "p") for name in ("one", "other")]
    residents = [Resident() for _ in found]
    async with asyncio.timeout(PATIENCE):
        for seat, resident in zip(found, residents, strict=True):
            async with seat.turn("p"):
                await seat.attach(resident)
        for _ in range(2):
            store.broken = {place}
            for seat in found:
                async with seat.turn("p"):
                    pass
    assert not store.broken
    for resident in residents:
        assert "end" not in resident.did
        # By turns: what is parked comes back before it is parked again.
        assert resident.did[::2] == ["park"] * len(resident.did[::2])
        assert resident.did[1::2] == ["restore"] * len(resident.did[1::2])
    for seat in found:
        await seat.give_back()
    await seating.close()
