"""Places in line for seats of one ledger, and the seats that this process holds there."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

from windlass.core.db.wake import Wake
from windlass.tuning.seats.holding import LedgerSeat
from windlass.tuning.seats.ledger import Row, SeatLedger, SeatWish
from windlass.tuning_api.trainers.seats import SeatAwaited, SeatedWorkload

WAKE_SEATS = "tuning seats"
# That a call waits for room before it says why; whoever asks again keeps the place.
PATIENCE_SECONDS = 5.0
# A place in line, and a seat in store, that nobody asks for goes.
ABANDONED_SECONDS = 60.0
_LINE_SECONDS = 2.0

# Makes a seat of its id, its token and its lease.
SeatMaker = Callable[[str, str, Row], LedgerSeat]


@dataclass
class SeatLine:
    """A place in line for one workload."""

    wish: SeatWish
    why: str = "It was just asked for."
    seat_id: str = ""
    token: str = ""
    asked_at: float = field(default_factory=lambda: asyncio.get_running_loop().time())
    task: "asyncio.Task[LedgerSeat] | None" = None


class SeatLines:
    """Stands in line for workloads of this process, and keeps what they get."""

    def __init__(self, ledger: SeatLedger, wake: Wake, make_seat: SeatMaker):
        self._ledger = ledger
        self._wake = wake
        self._make_seat = make_seat
        self._lines: dict[SeatedWorkload, SeatLine] = {}
        self._held: list[LedgerSeat] = []
        self._losing: set[asyncio.Task[None]] = set()
        self._is_closed = False

    @property
    def is_empty(self) -> bool:
        """True while nobody of this process waits or sits here."""
        return not self._lines and all(one.is_over for one in self._held)

    def has(self, workload: SeatedWorkload) -> bool:
        """Returns True for a workload that has a place in line."""
        return workload in self._lines

    async def take(self, workload: SeatedWorkload, wish: SeatWish) -> LedgerSeat:
        """Waits in line for a while; the place is kept for whoever asks again.

        Raises SeatAwaited.
        """
        if self._is_closed:
            await asyncio.sleep(_LINE_SECONDS)
            raise SeatAwaited("The server ends.")
        line = self._lines.get(workload)
        if line is None:
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
        """Returns True if somebody waits for room here, and this process holds some."""
        return any(one.is_wanted for one in self._held)

    async def keep(self) -> None:
        """Renews what this process holds or waits for, and leaves lines that nobody asks for."""
        for line in tuple(self._lines.values()):
            if line.token:
                await self._ledger.renew(line.seat_id, line.token)
        self._held = [one for one in self._held if not one.is_over]
        for seat in self._held:
            if not await self._ledger.renew(seat.id, seat.token) and not seat.is_over:
                # Its process may take its time, in which others are to be renewed.
                losing = asyncio.create_task(seat.lose())
                self._losing.add(losing)
                losing.add_done_callback(self._losing.discard)
        before = asyncio.get_running_loop().time() - ABANDONED_SECONDS
        for workload, line in tuple(self._lines.items()):
            if line.asked_at < before:
                await self.give_up(workload)

    async def close(self) -> None:
        """Lets nobody in any more; places in line are given up."""
        self._is_closed = True
        tasks = [line.task for line in self._lines.values() if line.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def tell(self) -> None:
        """Has whoever waits look again, in any process."""
        self._wake.touch(WAKE_SEATS)

    async def _stand(self, line: SeatLine) -> LedgerSeat:
        """Stands in line until there is room."""
        listener = self._wake.listen(WAKE_SEATS)
        try:
            line.seat_id, line.token = await self._ledger.ask(line.wish)
            self.tell()
            while True:
                lease, line.why = await self._ledger.admit(line.seat_id, line.token)
                if lease is not None:
                    break
                await listener.wait(_LINE_SECONDS)
        except BaseException:
            if line.seat_id:
                with suppress(asyncio.CancelledError):
                    await asyncio.shield(self._ledger.release(line.seat_id, line.token))
            self.tell()
            raise
        finally:
            listener.close()
        seat = self._make_seat(line.seat_id, line.token, lease)
        self._held.append(seat)
        return seat
