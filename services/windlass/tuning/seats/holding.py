"""A seat that this process holds: the gate of its trainer's calls, and its turns."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass

from windlass.core import telemetry
from windlass.core.clock import now
from windlass.core.db.leases import tolerated
from windlass.core.db.wake import Listener
from windlass.metrics import tuning as metrics
from windlass.tuning.seats.identity import identity
from windlass.tuning.seats.ledger import SeatLedger
from windlass.tuning.seats.parking import Parking
from windlass.tuning.seats.turns import SeatLost, SeatStanding, TurnStore
from windlass.tuning_api.seating.turns import TurnPatience, TurnState
from windlass.tuning_api.trainers.port import TrainerLost
from windlass.tuning_api.trainers.seats import ResidentProcess

LOOK_SECONDS = 5.0

log = telemetry.logger("seats")


@dataclass(frozen=True)
class TurnTaking:
    """Rules by which turns are taken on a machine."""

    store: TurnStore
    # False: all compute at once.
    is_on: bool
    parking: Parking
    patience: TurnPatience
    drain_seconds: float
    parking_seconds: float
    restore_seconds: float


class LedgerSeat:
    """Implements `Seat` by a row of the ledger.

    Calls go through a gate, which is open while the turn is the trainer's. Somebody else's wish
    closes it, the calls that are open end, and the trainer is parked.
    """

    def __init__(
        self,
        seat_id: str,
        token: str,
        lease_id: str,
        ledger: SeatLedger,
        taking: TurnTaking,
        listener: Listener,
        tell: Callable[[], None],
        environment: Mapping[str, str],
    ):
        self.id, self.token, self.environment = seat_id, token, environment
        self._room_is_wanted = False
        self._lease_id = lease_id
        self._ledger = ledger
        self._taking = taking
        self._listener = listener
        self._tell = tell
        self._process: ResidentProcess | None = None
        self._calls = 0
        self._quiet_since = now()
        self._drained = asyncio.Event()
        self._drained.set()
        self._gate = asyncio.Event()
        self._is_open = not taking.is_on
        # The row may not say so yet, where a write failed.
        self._is_parked = False
        self._asking: str | None = None
        self._has_ended = self._is_given_back = False
        self._driver = asyncio.create_task(self._drive(), name=f"seat {seat_id}")

    @property
    def is_wanted(self) -> bool:
        """True while others wait for room on its machine."""
        return self._room_is_wanted

    @property
    def is_over(self) -> bool:
        """True once nobody may sit here any more."""
        return self._has_ended

    async def attach(self, process: ResidentProcess) -> None:
        """Notes the process that was started; raises TrainerLost where the seat is lost."""
        self._process = process
        if not await self._ledger.attach(self.id, self.token, identity(process.pid)):
            raise TrainerLost("its seat was taken over")

    @asynccontextmanager
    async def turn(self, project_id: str) -> AsyncIterator[None]:
        """Waits at the gate, and keeps it from closing for as long as the block runs."""
        while not self._is_open or self._has_ended:
            if self._has_ended:
                raise TrainerLost("its seat was given back")
            if self._asking is None:
                self._asking = project_id
                self._listener.set()
            await self._gate.wait()
        self._calls += 1
        self._drained.clear()
        try:
            yield
        finally:
            self._calls -= 1
            if not self._calls:
                self._quiet_since = now()
                self._drained.set()
                self._listener.set()

    async def give_back(self) -> None:
        """Leaves the device to others, once the process has ended."""
        if self._is_given_back:
            return
        self._is_given_back = True
        self._end()
        if asyncio.current_task() is not self._driver:
            self._driver.cancel()
        self._listener.close()
        async with tolerated("tuning.seats"):
            await self._ledger.release(self.id, self.token)
        self._tell()

    async def lose(self) -> None:
        """Ends the process of a seat that another server has taken over."""
        log.error("seat_lost", seat_id=self.id)
        self._end()
        if self._process is not None:
            await self._process.end()

    def _end(self) -> None:
        self._has_ended, self._is_open = True, False
        self._gate.set()

    async def _drive(self) -> None:
        while not self._has_ended:
            seconds = LOOK_SECONDS
            async with tolerated("tuning.turns"):
                try:
                    seconds = await self._step()
                except SeatLost:
                    await self.lose()
                    return
            if seconds and not self._has_ended:
                await self._listener.wait(seconds)

    async def _step(self) -> float:
        """Does what is due; returns the seconds until there may be more, 0: at once."""
        standing = await self._taking.store.standing(self.id, self.token)
        self._room_is_wanted = standing.room_is_wanted
        if not self._taking.is_on:
            return LOOK_SECONDS
        if standing.turn is TurnState.RESTORING:
            await self._begin()
            return 0.0
        if standing.turn is TurnState.ACTIVE:
            self._open()
            return await self._let_in(standing)
        if standing.turn is TurnState.PARKING:
            return await self._leave()
        if self._asking is not None and not standing.has_asked:
            await self._taking.store.ask(self._lease_id, self.id, self.token, self._asking)
            self._tell()
            return 0.0
        return LOOK_SECONDS

    async def _begin(self) -> None:
        """Takes the turn that was granted; a trainer that cannot come back is ended."""
        taking, process = self._taking, self._process
        if process is not None and self._is_parked:
            restored = taking.parking.restore(process)
            if not await self._done(process, "restore", restored, taking.restore_seconds):
                return
            self._is_parked = False
        await taking.store.move(self.id, self.token, TurnState.ACTIVE)
        self._asking = None
        self._quiet_since = now()
        self._open()

    async def _let_in(self, standing: SeatStanding) -> float:
        """Leaves the device to who waits, once that is due; returns when to look again."""
        taking = self._taking
        if not standing.others_wait:
            return LOOK_SECONDS
        quiet = None if self._calls else self._quiet_since
        if left := taking.patience.seconds_left(now(), standing.granted_at, quiet, standing.weight):
            return left
        self._is_open = False
        self._gate.clear()
        process = self._process
        if process is None:
            # It is about to start, in a block of its own.
            await self._drained.wait()
            return 0.0
        drained = self._drained.wait()
        if not await self._done(process, "drain", drained, taking.drain_seconds):
            return LOOK_SECONDS
        await taking.store.move(self.id, self.token, TurnState.PARKING)
        return await self._leave()

    async def _leave(self) -> float:
        """Parks the trainer, unless it is, and ends its turn."""
        taking, process = self._taking, self._process
        if process is not None and not self._is_parked:
            parked = taking.parking.park(process)
            if not await self._done(process, "park", parked, taking.parking_seconds):
                return LOOK_SECONDS
            self._is_parked = True
        await taking.store.leave(self._lease_id, self.id, self.token)
        self._tell()
        return 0.0

    async def _done(
        self, process: ResidentProcess, action: str, work: Awaitable[object], seconds: float
    ) -> bool:
        """Returns False where a switch failed: the process is ended then, and its seat free."""
        began = now()
        try:
            async with asyncio.timeout(seconds):
                await work
        except (TimeoutError, TrainerLost) as error:
            log.error("turn_failed", seat_id=self.id, action=action, error=str(error))
            metrics.SWITCHES.labels(action, "failed").inc()
            self._end()
            await process.end()
            return False
        metrics.SWITCHES.labels(action, "done").inc()
        metrics.SWITCH_SECONDS.labels(action).observe(now() - began)
        return True

    def _open(self) -> None:
        self._is_open = True
        self._gate.set()
