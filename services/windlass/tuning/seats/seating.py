"""Gives seats of this machine, keeps them, and takes those back whose holders have died."""

import asyncio
from collections.abc import Callable, Mapping

from windlass.core import telemetry
from windlass.core.db.leases import tolerated
from windlass.core.db.wake import Wake
from windlass.metrics import tuning as metrics
from windlass.tuning.seats.holding import LedgerSeat, TurnTaking
from windlass.tuning.seats.identity import ended, lives
from windlass.tuning.seats.ledger import LEASE_SECONDS, Row, SeatLedger, SeatWish
from windlass.tuning.seats.queueing import WAKE_SEATS, SeatLines
from windlass.tuning_api.seating.admission import Demand
from windlass.tuning_api.trainers.seats import SeatedWorkload, SeatRefused

RENEW_SECONDS = LEASE_SECONDS / 3

log = telemetry.logger("seats")
Environment = Callable[[str], Mapping[str, str]]


class LedgerSeating:
    """Implements `Seating` by the ledger of this machine."""

    def __init__(
        self,
        ledger: SeatLedger,
        taking: TurnTaking,
        wake: Wake,
        demand: Callable[[SeatedWorkload], Demand],
        environment: Environment,
    ):
        self._ledger = ledger
        self._taking = taking
        self._wake = wake
        self._demand = demand
        self._environment = environment
        self._lines = SeatLines(ledger, wake, self._seat)

    async def take(self, workload: SeatedWorkload, project_id: str) -> LedgerSeat:
        """Waits in line for a while; the place is kept for whoever asks again."""
        # What many share is nobody's, whoever came first.
        owner = project_id if workload.owner else ""
        wish = SeatWish(workload.base_model, owner, self._demand(workload), owner=workload.owner)
        if not self._lines.has(workload) and (said := await self._ledger.never_fits(wish.demand)):
            raise SeatRefused(said)
        return await self._lines.take(workload, wish)

    async def give_up(self, workload: SeatedWorkload) -> None:
        """Leaves the line; who is behind comes nearer at once."""
        await self._lines.give_up(workload)

    def room_is_wanted(self) -> bool:
        """Returns True if somebody waits for room on this machine, and this process holds some."""
        return self._lines.room_is_wanted()

    async def run(self) -> None:
        """Keeps what is held, and audits what others held, until cancelled."""
        while True:
            async with tolerated("tuning.seats"):
                # First one's own: a process that stood still has not died.
                await self._lines.keep()
                await self.audit()
            await asyncio.sleep(RENEW_SECONDS)

    async def audit(self) -> None:
        """Ends what sits on seats whose servers have died, and gives the seats back."""
        dead = [one for one in await self._ledger.holders() if not lives(one)]
        token, rows = await self._ledger.take_over(dead)
        for row in rows:
            if not await asyncio.to_thread(ended, row.process):
                # A device that may be dirty is nobody's.
                log.error("resident_stays", seat_id=row.id, process=row.process)
                continue
            log.warning("seat_taken_back", seat_id=row.id, workload=row.workload)
            metrics.SEATS_TAKEN_BACK.inc()
            await self._ledger.release(row.id, token)
        if rows:
            self._lines.tell()

    async def close(self) -> None:
        """Lets nobody in any more; places in line are given up."""
        await self._lines.close()

    def _seat(self, seat_id: str, token: str, lease: Row) -> LedgerSeat:
        return LedgerSeat(
            seat_id,
            token,
            lease.id,
            self._ledger,
            self._taking,
            self._wake.listen(WAKE_SEATS),
            self._lines.tell,
            self._environment(lease.device),
        )
