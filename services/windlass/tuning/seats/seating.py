"""Gives seats of this machine, keeps them, and takes those back whose holders have died."""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field

from windlass.core import telemetry
from windlass.core.db.leases import tolerated
from windlass.core.db.wake import Wake
from windlass.metrics import tuning as metrics
from windlass.tuning.seats.holding import LedgerSeat, TurnTaking
from windlass.tuning.seats.identity import ended, lives
from windlass.tuning.seats.ledger import LEASE_SECONDS, SeatLedger, SeatWish
from windlass.tuning_api.seating.admission import Demand
from windlass.tuning_api.trainers.seats import SeatAwaited, SeatedWorkload, SeatRefused

WAKE_SEATS = "tuning seats"
RENEW_SECONDS = LEASE_SECONDS / 3
# That a call waits for room before it says why; whoever asks again keeps the place.
PATIENCE_SECONDS = 5.0
# A place in line, and a seat in store, that nobody asks for goes.
ABANDONED_SECONDS = 60.0
_LINE_SECONDS = 2.0

log = telemetry.logger("seats")
Environment = Callable[[str], Mapping[str, str]]


@dataclass
class SeatLine:
    """A place in line for one workload."""

    wish: SeatWish
    why: str = "It was just asked for."
    seat_id: str = ""
    token: str = ""
    asked_at: float = field(default_factory=lambda: asyncio.get_running_loop().time())
    task: "asyncio.Task[LedgerSeat] | None" = None


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
        self._lines: dict[SeatedWorkload, SeatLine] = {}
        self._held: list[LedgerSeat] = []
        self._is_closed = False

    async def take(self, workload: SeatedWorkload, project_id: str) -> LedgerSeat:
        """Waits in line for a while; the place is kept for whoever asks again."""
        if self._is_closed:
            await asyncio.sleep(_LINE_SECONDS)
            raise SeatAwaited("The server ends.")
        line = self._lines.get(workload)
        if line is None:
            # What many share is nobody's, whoever came first.
            owner = project_id if workload.owner else ""
            wish = SeatWish(workload.base_model, owner, self._demand(workload))
            if said := await self._ledger.never_fits(wish.demand):
                raise SeatRefused(said)
            line = self._lines[workload] = SeatLine(wish)
            line.task = asyncio.create_task(self._stand(line), name=f"line {workload.base_model}")
        assert line.task is not None  # noqa: S101  # made with the line
        line.asked_at = asyncio.get_running_loop().time()
        await asyncio.wait({line.task}, timeout=PATIENCE_SECONDS)
        if self._lines.get(workload) is not line:
            raise SeatAwaited("Its place in line was given up.")
        if not line.task.done():
            raise SeatAwaited(line.why)
        del self._lines[workload]
        if line.task.cancelled():
            raise SeatAwaited("The server ends.")
        if error := line.task.exception():
            raise SeatAwaited(f"Its place in line was lost: {error}") from error
        return line.task.result()

    async def give_up(self, workload: SeatedWorkload) -> None:
        """Leaves the line; who is behind comes nearer at once."""
        line = self._lines.pop(workload, None)
        if line is None or line.task is None:
            return
        line.task.cancel()
        await asyncio.wait({line.task})
        if not line.task.cancelled() and not line.task.exception():
            await line.task.result().give_back()

    def room_is_wanted(self) -> bool:
        """Returns True if somebody waits for room on this machine, and this process holds some."""
        return any(one.is_wanted for one in self._held)

    async def run(self) -> None:
        """Keeps what is held, and audits what others held, until cancelled."""
        while True:
            async with tolerated("tuning.seats"):
                # First one's own: a process that stood still has not died.
                await self._renew()
                await self.audit()
                await self._abandon()
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
            self._tell()

    async def close(self) -> None:
        """Lets nobody in any more; places in line are given up."""
        self._is_closed = True
        tasks = [line.task for line in self._lines.values() if line.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _stand(self, line: SeatLine) -> LedgerSeat:
        """Stands in line until there is room."""
        listener = self._wake.listen(WAKE_SEATS)
        try:
            line.seat_id, line.token = await self._ledger.ask(line.wish)
            self._tell()
            while True:
                lease, line.why = await self._ledger.admit(line.seat_id, line.token)
                if lease is not None:
                    break
                await listener.wait(_LINE_SECONDS)
        except BaseException:
            if line.seat_id:
                with suppress(asyncio.CancelledError):
                    await asyncio.shield(self._ledger.release(line.seat_id, line.token))
            self._tell()
            raise
        finally:
            listener.close()
        seat = LedgerSeat(
            line.seat_id,
            line.token,
            lease.id,
            self._ledger,
            self._taking,
            self._wake.listen(WAKE_SEATS),
            self._tell,
            self._environment(lease.device),
        )
        self._held.append(seat)
        return seat

    async def _renew(self) -> None:
        for line in tuple(self._lines.values()):
            if line.token:
                await self._ledger.renew(line.seat_id, line.token)
        self._held = [one for one in self._held if not one.is_over]
        for seat in self._held:
            if not await self._ledger.renew(seat.id, seat.token) and not seat.is_over:
                await seat.lose()

    async def _abandon(self) -> None:
        before = asyncio.get_running_loop().time() - ABANDONED_SECONDS
        for workload, line in tuple(self._lines.items()):
            if line.asked_at < before:
                await self.give_up(workload)

    def _tell(self) -> None:
        self._wake.touch(WAKE_SEATS)
