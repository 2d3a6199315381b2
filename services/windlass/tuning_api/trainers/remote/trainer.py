"""The port of trainers over a process that comes when it is needed and goes when it is not."""

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace

from windlass.core import telemetry
from windlass.tuning_api.trainers.port import RunNotOpen, TrainerLost
from windlass.tuning_api.trainers.records import (
    Operation,
    OperationFailed,
    Outcome,
    Run,
    SampleRequest,
    Samples,
    TrainableModel,
)
from windlass.tuning_api.trainers.remote.launched import TrainerLauncher
from windlass.tuning_api.trainers.remote.link import TrainerLink
from windlass.tuning_api.trainers.seats import SeatAwaited, SeatedWorkload, Seating, Unseated

# Of a model that takes as long to read as models do.
START_SECONDS = 900.0
# One that cannot start is not started for each operation that would have it.
RETRY_SECONDS = 5.0
# Whether others want the seat of a trainer that is idle.
LOOK_SECONDS = 2.0

log = telemetry.logger("trainer")


class RemoteTrainer:
    """Implements `Trainer` for one base model, in a process of its own.

    The first call starts the process, and the next one a new one where that is lost. It ends once
    it held no run and was asked nothing for `idle_seconds`.
    """

    def __init__(
        self,
        model: TrainableModel,
        launcher: TrainerLauncher,
        *,
        idle_seconds: float,
        seating: Seating | None = None,
        workload: SeatedWorkload | None = None,
    ):
        """`workload` is what has a seat; by default, the model for all who name it."""
        self._model = model
        self._launcher = launcher
        self._seating = seating or Unseated()
        self._workload = workload or SeatedWorkload(model.name)
        self._idle_seconds = idle_seconds
        self._link: TrainerLink | None = None
        self._starting = asyncio.Lock()
        # Calls that ask for a link now, and runs that ask again: they keep the place in line.
        self._asking = 0
        self._awaiting: set[str] = set()
        self._retry_at = 0.0
        self._idle: asyncio.TimerHandle | None = None
        self._ending: set[asyncio.Task[None]] = set()
        self._watching: set[asyncio.Task[None]] = set()
        self._is_stopped = False

    @property
    def base_models(self) -> Sequence[TrainableModel]:
        """The model, as its files describe it."""
        return (self._model,)

    @property
    def pid(self) -> int:
        """The id of the process; 0 while there is none."""
        return 0 if self._link is None or self._link.is_lost else self._link.process.pid

    @property
    def is_started(self) -> bool:
        """True while there is a process that answers."""
        return self._link is not None and not self._link.is_lost

    async def start(self, project_id: str) -> None:
        """Starts the process, if there is none. Raises SeatAwaited, SeatRefused, TrainerLost."""
        await self._linked(project_id)

    async def open(self, run: Run) -> None:
        """Opens a run in the process, which is started for it if need be."""
        try:
            link = await self._linked(run.project_id)
        except SeatAwaited:
            self._awaiting.add(run.id)
            raise
        self._awaiting.discard(run.id)
        async with self._called(link, run.project_id):
            if run.id not in link.runs:
                await link.open(run)

    async def execute(self, run_id: str, operations: Sequence[Operation]) -> Sequence[Outcome]:
        """Carries out operations where the run is."""
        link = self._link
        if link is None or run_id not in link.runs:
            raise RunNotOpen(run_id)
        async with self._called(link, link.runs[run_id]):
            return await link.execute(run_id, operations)

    async def sample(self, request: SampleRequest) -> Samples | OperationFailed:
        """Continues a prompt in the process, which is started for it if need be."""
        link = await self._linked(request.project_id)
        async with self._called(link, request.project_id):
            return await link.sample(request)

    async def close(self, run_id: str) -> None:
        """Has the process forget a run; the last one that waits for a seat leaves the line."""
        self._awaiting.discard(run_id)
        link = self._link
        if link is not None and not link.is_lost and run_id in link.runs:
            async with self._counted(link):
                await link.close(run_id)
        elif not self._awaiting and not self._asking:
            await self._seating.give_up(self._workload)

    async def stop(self) -> None:
        """Ends the process, for good."""
        self._is_stopped = True
        if self._link is not None:
            self._let_go(self._link)
        if self._idle is not None:
            self._idle.cancel()
        await self._seating.give_up(self._workload)
        await asyncio.gather(*self._ending)

    @asynccontextmanager
    async def _called(self, link: TrainerLink, project_id: str) -> AsyncIterator[None]:
        """Waits for the process's turn, and counts a call."""
        async with self._counted(link), link.seat.turn(project_id):
            yield

    @asynccontextmanager
    async def _counted(self, link: TrainerLink) -> AsyncIterator[None]:
        """Counts a call, and lets a process go that was lost during it."""
        link.calls += 1
        try:
            yield
        finally:
            link.calls -= 1
            if link.is_lost:
                self._let_go(link)
            elif link.is_idle:
                self._rest(link)

    async def _linked(self, project_id: str) -> TrainerLink:
        self._asking += 1
        try:
            async with self._starting:
                return await self._found(project_id)
        finally:
            self._asking -= 1

    async def _found(self, project_id: str) -> TrainerLink:
        """The process that is there, or a new one."""
        if self._is_stopped:
            raise TrainerLost("the trainer has ended")
        if self._link is not None and not self._link.is_lost:
            return self._link
        if self._link is not None:
            self._let_go(self._link)
        if time.monotonic() < self._retry_at:
            raise TrainerLost("the trainer could not be started")
        link = await self._seated(project_id)
        if self._is_stopped:
            self._end(link)
            raise TrainerLost("the trainer has ended")
        self._link = link
        watching = asyncio.create_task(self._watch(link))
        self._watching.add(watching)
        watching.add_done_callback(self._watching.discard)
        return link

    async def _seated(self, project_id: str) -> TrainerLink:
        """A process that has loaded its model, on a seat that it keeps for its life."""
        seat = await self._seating.take(self._workload, project_id)
        async with AsyncExitStack() as unused:
            unused.push_async_callback(seat.give_back)
            async with seat.turn(project_id):
                try:
                    process = await self._launcher.launch(seat)
                except OSError as error:
                    raise self._not_started(str(error)) from error
                # From here on its end gives the seat back.
                unused.pop_all()
                return await self._started(TrainerLink(process, seat))

    async def _started(self, link: TrainerLink) -> TrainerLink:
        try:
            await link.seat.attach(link)
            async with asyncio.timeout(START_SECONDS):
                found = await link.describe()
        except TimeoutError as error:
            self._end(link)
            raise self._not_started("it took too long") from error
        except TrainerLost as error:
            self._end(link)
            raise self._not_started(str(error)) from error
        except BaseException:
            self._end(link)
            raise
        # Where it has the tokenizer is its own affair.
        here = [replace(one, tokenizer_id=self._model.tokenizer_id) for one in found]
        if here != [self._model]:
            self._end(link)
            raise self._not_started(f"it trains {found}, which its files do not describe")
        return link

    async def _watch(self, link: TrainerLink) -> None:
        """Lets a process go once it has ended, so that nobody waits for its seat."""
        await link.process.wait()
        self._let_go(link)

    def _not_started(self, reason: str) -> TrainerLost:
        self._retry_at = time.monotonic() + RETRY_SECONDS
        log.error("trainer_not_started", base_model=self._model.name, reason=reason)
        return TrainerLost(reason)

    def _rest(self, link: TrainerLink) -> None:
        if self._idle is not None:
            self._idle.cancel()

        loop = asyncio.get_running_loop()
        until = loop.time() + self._idle_seconds

        def retire() -> None:
            if not link.is_idle:
                return
            if link.seat.is_wanted or loop.time() >= until:
                self._let_go(link)
            else:
                self._idle = loop.call_later(min(LOOK_SECONDS, until - loop.time()), retire)

        self._idle = loop.call_later(min(LOOK_SECONDS, self._idle_seconds), retire)

    def _let_go(self, link: TrainerLink) -> None:
        if self._link is link:
            self._link = None
            self._end(link)

    def _end(self, link: TrainerLink) -> None:
        task = asyncio.get_running_loop().create_task(link.end())
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)
