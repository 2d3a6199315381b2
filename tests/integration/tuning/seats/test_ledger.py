"""The ledger of two servers of one machine: admission, turns, and seats of servers that died."""

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator

import psutil
import pytest
import sqlalchemy as sa

from windlass.core.db import Database
from windlass.core.db.wake import Wake
from windlass.tuning.seats.holding import TurnTaking
from windlass.tuning.seats.identity import identity
from windlass.tuning.seats.ledger import SeatLedger, SeatWish
from windlass.tuning.seats.parking import NoParking
from windlass.tuning.seats.seating import LedgerSeating
from windlass.tuning.seats.tables import leases, seats
from windlass.tuning.seats.turns import SeatLost, TurnStore
from windlass.tuning_api.seating.admission import Demand
from windlass.tuning_api.seating.turns import TurnPatience, TurnPolicy, TurnState
from windlass.tuning_api.trainers.seats import SeatedWorkload, SeatRefused

GIB = 2**30
TRAINER = Demand(16 * GIB, 16 * GIB)
DEVICE = {
    "device": "gpu-0", "device_bytes": 80 * GIB, "host_bytes": 44 * GIB, "max_residents": 8,
    "devices": 1, "project_id": "", "queue": "",
}  # fmt: skip


@pytest.fixture
async def database(database_url: str) -> AsyncIterator[Database]:
    made = Database(database_url)
    yield made
    await made.close()


def ledger_of(database: Database, holder: str = "") -> SeatLedger:
    mine = holder or identity(os.getpid())
    return SeatLedger(database, "node", mine, takes_turns=True, policy=TurnPolicy.FIFO)


@pytest.fixture
async def ledgers(database: Database) -> list[SeatLedger]:
    """Of two servers."""
    found = [ledger_of(database) for _ in range(2)]
    await found[0].declare([DEVICE])
    return found


async def test_two_fit_and_the_third_waits_until_one_goes(ledgers: list[SeatLedger]) -> None:
    one, other = ledgers
    held = [
        await ledger.ask(SeatWish(name, "", TRAINER))
        for name, ledger in zip("abc", [*ledgers, one], strict=True)
    ]
    for seat in held[:2]:
        lease, why = await other.admit(*seat)
        assert lease is not None
        assert why == ""
    lease, why = await one.admit(*held[2])
    assert lease is None
    assert "44 GiB of memory for residents, of which 32 GiB are taken: 16 GiB" in why
    # Whoever came later does not pass it, though it would fit.
    small = await other.ask(SeatWish("d", "", Demand(GIB, GIB)))
    assert (await other.admit(*small))[1] == "1 waits for room before it."
    await other.release(*held[0])
    await other.release(*held[0])
    for seat in (held[2], small):
        assert (await other.admit(*seat))[0] is not None
    await one.release(*small)
    with pytest.raises(LookupError):
        await one.admit(*small)


async def test_room_is_wanted_by_who_was_told_that_there_is_none(
    ledgers: list[SeatLedger], database: Database
) -> None:
    store, ledger = TurnStore(database, TurnPolicy.FIFO, {}), ledgers[0]
    held = await ledger.ask(SeatWish("a", "", TRAINER))
    await ledger.admit(*held)
    large = await ledger.ask(SeatWish("b", "", Demand(16 * GIB, 40 * GIB)))
    assert not (await store.standing(*held)).room_is_wanted
    assert (await ledger.admit(*large))[0] is None
    assert (await store.standing(*held)).room_is_wanted


async def test_what_two_servers_admit_at_once_is_never_too_much(
    ledgers: list[SeatLedger], database: Database
) -> None:
    async def live(number: int) -> None:
        ledger = ledgers[number % 2]
        seat = await ledger.ask(SeatWish(f"w{number}", "", TRAINER))
        while (await ledger.admit(*seat))[0] is None:
            await asyncio.sleep(0)
        query = sa.select(sa.func.sum(seats.c.host_bytes)).where(seats.c.lease_id != "")
        async with database.autocommit() as connection:
            assert int(await connection.scalar(query) or 0) <= 44 * GIB
        await ledger.release(*seat)

    async with asyncio.timeout(60):
        await asyncio.gather(*(live(number) for number in range(12)))
    async with database.autocommit() as connection:
        assert await connection.scalar(sa.select(sa.func.count()).select_from(seats)) == 0


async def test_turns_go_from_one_server_to_the_other(
    ledgers: list[SeatLedger], database: Database
) -> None:
    store = TurnStore(database, TurnPolicy.FIFO, {})
    held = [await ledger.ask(SeatWish("w", "", TRAINER)) for ledger in ledgers]
    [lease, _] = [(await ledgers[0].admit(*seat))[0] for seat in held]
    assert lease is not None
    first, second = held
    await store.ask(lease.id, *first, "a")
    await store.ask(lease.id, *second, "b")
    assert (await store.standing(*first)).turn is TurnState.RESTORING
    waiting = await store.standing(*second)
    assert (waiting.turn, waiting.has_asked) == (TurnState.PARKED, True)
    await store.move(*first, TurnState.ACTIVE)
    assert (await store.standing(*first)).others_wait
    await store.leave(lease.id, *first)
    assert (await store.standing(*second)).turn is TurnState.RESTORING
    # Who has the device goes, and the next is granted with that.
    await store.ask(lease.id, *first, "a")
    await ledgers[1].release(*second)
    assert (await store.standing(*first)).turn is TurnState.RESTORING
    with pytest.raises(SeatLost):
        await store.ask(lease.id, *second, "b")
    with pytest.raises(SeatLost):
        await store.move(first[0], "another", TurnState.ACTIVE)


async def test_a_device_that_is_no_longer_configured_goes_once_it_is_free(
    ledgers: list[SeatLedger], database: Database
) -> None:
    seat = await ledgers[0].ask(SeatWish("w", "", TRAINER))
    assert (await ledgers[0].admit(*seat))[0] is not None

    async def names() -> list[str]:
        async with database.autocommit() as connection:
            return sorted(await connection.scalars(sa.select(leases.c.device)))

    await ledgers[0].declare([DEVICE | {"device": "gpu-1"}])
    assert await names() == ["gpu-0", "gpu-1"]
    await ledgers[0].release(*seat)
    await ledgers[0].declare([DEVICE | {"device": "gpu-1"}])
    assert await names() == ["gpu-1"]


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(
        [sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True
    )
    yield process
    process.kill()
    process.wait()


async def test_seats_of_a_server_that_died_are_taken_back_with_what_sits_there(
    ledgers: list[SeatLedger],
    database: Database,
    database_url: str,
    sleeper: subprocess.Popen[bytes],
) -> None:
    died = subprocess.Popen([sys.executable, "-c", ""])
    gone = f"{died.pid}:{psutil.Process(died.pid).create_time():.2f}"
    died.wait()
    dead = ledger_of(database, gone)
    resident, token = await dead.ask(SeatWish("w", "", TRAINER))
    lease, _ = await dead.admit(resident, token)
    assert lease is not None
    assert await dead.attach(resident, token, identity(sleeper.pid))
    await TurnStore(database, TurnPolicy.FIFO, {}).ask(lease.id, resident, token, "a")
    mine = await ledgers[0].ask(SeatWish("mine", "", TRAINER))
    assert (await ledgers[0].admit(*mine))[0] is not None
    store = TurnStore(database, TurnPolicy.FIFO, {})
    await store.ask(lease.id, *mine, "b")
    taking = TurnTaking(store, True, NoParking(), TurnPatience(1, 1), 1, 1, 1)
    seating = LedgerSeating(ledgers[0], taking, Wake(database_url), lambda _: TRAINER, lambda _: {})
    await seating.audit()
    assert sleeper.poll() is not None
    assert (await store.standing(*mine)).turn is TurnState.RESTORING
    async with database.autocommit() as connection:
        assert list(await connection.scalars(sa.select(seats.c.id))) == [mine[0]]
    # Its own seats, of a server that lives, are not touched.
    await seating.audit()
    assert await ledgers[0].renew(*mine)
    assert not await dead.renew(resident, token)


async def test_what_no_device_has_room_for_is_refused_before_it_waits(
    ledgers: list[SeatLedger], database: Database, database_url: str
) -> None:
    taking = TurnTaking(
        TurnStore(database, TurnPolicy.FIFO, {}), True, NoParking(), TurnPatience(1, 1), 1, 1, 1
    )
    seating = LedgerSeating(
        ledgers[0], taking, Wake(database_url), lambda _: Demand(81 * GIB, GIB), lambda _: {}
    )
    with pytest.raises(SeatRefused, match="gpu-0 has 80 GiB, and 81 GiB would be needed"):
        await seating.take(SeatedWorkload("huge"), "p")


async def test_runs_of_their_own_have_a_seat_each_and_who_shares_has_one(
    ledgers: list[SeatLedger], database: Database, database_url: str
) -> None:
    taking = TurnTaking(
        TurnStore(database, TurnPolicy.FIFO, {}), False, NoParking(), TurnPatience(1, 1), 1, 1, 1
    )
    wake = Wake(database_url)
    seating = LedgerSeating(ledgers[0], taking, wake, lambda _: Demand(GIB, GIB), lambda _: {})
    asked = [
        SeatedWorkload("toy", "run-a", 1),
        SeatedWorkload("toy", "run-b", 1),
        SeatedWorkload("toy"),
    ]
    found = await asyncio.gather(*(seating.take(one, "p") for one in asked))
    assert len({one.id for one in found}) == len(asked)
    for seat in found:
        await seat.give_back()
