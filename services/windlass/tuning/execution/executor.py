"""The loops that carry out the log: claim, work under a kept lease, apply where it is held.

A run stays leased for as long as the trainer holds it, so that what it is asked next comes to its
holder in memory.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Coroutine, Sequence
from contextlib import asynccontextmanager

from windlass.core.db.leases import run_loop, tolerated
from windlass.core.db.wake import Wake
from windlass.core.ids import new_id
from windlass.core.killpoints import reach
from windlass.tuning.blobs import Blobs
from windlass.tuning.execution.patience import patiently
from windlass.tuning.execution.runs import RunWorker
from windlass.tuning.execution.samples import SampleWorker
from windlass.tuning.inbox import DueOperation, Inbox, Inboxes, SampleDesk
from windlass.tuning.results import ResultBoard
from windlass.tuning.storage.execution import RENEW_SECONDS, ExecutionStore, Row
from windlass.tuning.storage.outcomes import Effects
from windlass.tuning.submission import WAKE_RUNS, WAKE_SAMPLES

RUNS_AT_ONCE = 32
SAMPLES_AT_ONCE = 128
_AT_ONCE = {WAKE_RUNS: RUNS_AT_ONCE, WAKE_SAMPLES: SAMPLES_AT_ONCE}


class LogExecutor:
    """Has runs and samples carried out, as many at once as it may."""

    def __init__(
        self,
        store: ExecutionStore,
        runs_worker: RunWorker,
        samples_worker: SampleWorker,
        blobs: Blobs,
        board: ResultBoard,
        inboxes: Inboxes,
        desk: SampleDesk,
        wake: Wake,
        resting: Callable[[], Awaitable[bool]],
        room_is_wanted: Callable[[], bool],
    ):
        self._store = store
        self._runs = runs_worker
        self._samples = samples_worker
        self._blobs = blobs
        self._board = board
        self._inboxes = inboxes
        self._desk = desk
        self._wake = wake
        self._resting = resting
        self._room_is_wanted = room_is_wanted
        self._is_stopping = False
        self._busy = {WAKE_RUNS: 0, WAKE_SAMPLES: 0}
        self._holders: dict[str, asyncio.Task[None]] = {}

    async def run(self) -> None:
        """Works until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._keep_leases())
            group.create_task(self._answer(group))
            for topic, claim in (
                (WAKE_RUNS, self._claim_runs),
                (WAKE_SAMPLES, self._claim_samples),
            ):
                listener = self._wake.listen(topic)

                async def once(
                    claim: Callable[[asyncio.TaskGroup], Awaitable[bool]] = claim,
                ) -> bool:
                    return await claim(group)

                group.create_task(run_loop(topic, listener, once, resting=self._resting))

    async def _claim_runs(self, group: asyncio.TaskGroup) -> bool:
        if idle := self._inboxes.idle():
            # Written by another process, or after a gap.
            for run_id in await self._store.with_due(idle):
                if (inbox := self._inboxes.find(run_id)) is not None:
                    inbox.look()
        free = RUNS_AT_ONCE - self._busy[WAKE_RUNS]
        if free <= 0 or self._is_stopping:
            return False
        claimed = await self._store.claim_runs(free)
        full = await self._store.claim_full_runs(free - len(claimed[1]))
        for token, rows in (claimed, full):
            for row in rows:
                self._holders[row.id] = self._start(group, WAKE_RUNS, self._hold(row, token))
        return len(claimed[1]) == free

    async def _claim_samples(self, group: asyncio.TaskGroup) -> bool:
        free = SAMPLES_AT_ONCE - self._busy[WAKE_SAMPLES]
        if not free:
            return False
        token, rows = await self._store.claim_samples(free)
        for row in rows:
            self._start(group, WAKE_SAMPLES, self._work_on_sample(row, token))
        return len(rows) == free

    async def _answer(self, group: asyncio.TaskGroup) -> None:
        """Answers what samplers are asked in this process, as far as there is room."""
        try:
            while True:
                self._desk.free = SAMPLES_AT_ONCE - self._busy[WAKE_SAMPLES]
                operation, token = await self._desk.take()
                self._start(group, WAKE_SAMPLES, self._work_on_sample(operation, token))
        finally:
            self._desk.free = 0

    def _start(
        self, group: asyncio.TaskGroup, topic: str, work: Coroutine[object, object, None]
    ) -> asyncio.Task[None]:
        self._busy[topic] += 1

        async def tolerant() -> None:
            try:
                async with tolerated(topic):
                    await work
            finally:
                was_full = self._busy[topic] >= _AT_ONCE[topic]
                self._busy[topic] -= 1
                self._desk.free = SAMPLES_AT_ONCE - self._busy[WAKE_SAMPLES]
                if was_full or topic == WAKE_RUNS:
                    # There is room again, and there may be more of the same.
                    self._wake.touch(topic)

        return group.create_task(tolerant())

    async def _hold(self, run: Row, token: str) -> None:
        """Carries out what a run is asked until it is given back."""
        inbox = self._inboxes.open(run.id, token)
        try:
            await self._work_on_run(run, token, inbox)
        finally:
            # What the trainer did may not be written: it goes on from what is.
            self._inboxes.close(run.id, inbox)
            self._holders.pop(run.id, None)
            await self._runs.close(run.id)
        # Also of one that is over: a trainer of all parameters counts by its lease.
        await self._store.release(run.id, token)

    async def _work_on_run(self, run: Row | None, token: str, inbox: Inbox) -> None:
        """Returns once there is nothing to do, another holds the run, or it is over."""
        while run is not None and run.state == "active":
            if inbox.is_left:
                await self._park(run.id, token)
                return
            run, due = await self._due(run, inbox)
            if due:
                async for effects in self._runs.work(run, due):
                    run = await self._apply(run, token, effects)
                    if run is None:
                        return
                saved = await self._runs.snapshot(run)
                if saved is not None:
                    run = await self._apply(run, token, saved)
            elif self._runs.holds(run.id):
                await self._rest(inbox)
            else:
                return

    async def _due(self, run: Row, inbox: Inbox) -> tuple[Row, Sequence[DueOperation]]:
        if found := inbox.take(run.next_seq):
            return run, found
        if not inbox.looks():
            return run, []
        # The sweeper may have passed a gap.
        run = await self._store.run(run.id)
        return run, await self._store.due(run.id, run.next_seq)

    async def _rest(self, inbox: Inbox) -> None:
        if self._busy[WAKE_RUNS] >= RUNS_AT_ONCE:
            self._wake.touch(WAKE_RUNS)
        self._busy[WAKE_RUNS] -= 1
        try:
            await inbox.wait()
        finally:
            self._busy[WAKE_RUNS] += 1

    async def _park(self, run_id: str, token: str) -> None:
        run = await self._store.run(run_id)
        if run.state == "active" and run.lease_owner == token:
            await self._apply(run, token, await self._runs.park(run))

    async def _apply(self, run: Row, token: str, effects: Effects) -> Row | None:
        reach("tuning.computed")
        applied = await patiently(lambda: self._store.apply(run, token, effects))
        reach("tuning.applied")
        if applied is not None:
            self._board.tell(run.project_id, effects.results)
        else:
            await self._discard(effects)
        return applied

    async def _keep_leases(self) -> None:
        while True:
            await asyncio.sleep(RENEW_SECONDS)
            async with tolerated("tuning.leases"):
                if tokens := self._inboxes.tokens():
                    kept = await self._store.renew_runs(tokens)
                    self._leave(tokens.keys() - kept)

    def _leave(self, run_ids: Collection[str]) -> list[asyncio.Task[None]]:
        """Has runs given back; returns who does."""
        for run_id in run_ids:
            if (inbox := self._inboxes.find(run_id)) is not None:
                inbox.leave()
        return [self._holders[one] for one in run_ids if one in self._holders]

    async def park_all(self) -> None:
        """Takes nothing more, and saves every run that the trainer holds, before an end."""
        self._is_stopping = True
        await self._gone(self._inboxes.tokens())

    async def let_go(self, *, silent_before: int) -> None:
        """Gives back runs that are over, that are in the way, and those of silent sessions."""
        if awaiting := self._runs.awaiting:
            for run_id in await self._store.over(awaiting):
                await self._runs.give_up(run_id)
        await self._samples.let_go(silent_before=silent_before)
        if idle := self._inboxes.idle():
            wanted = self._room_is_wanted()
            leaving = await self._store.leaving(idle, silent_before, room_is_wanted=wanted)
            await self._gone(leaving)

    async def _gone(self, run_ids: Collection[str]) -> None:
        if holders := self._leave(run_ids):
            await asyncio.wait(holders)

    async def _work_on_sample(self, operation: DueOperation, token: str) -> None:
        async with self._renewed(operation.id, token):
            result, base_model, spent = await self._samples.work(operation)
            # Of this try alone: another process's may be the one that is written.
            kind = new_id("result-")
            content, key = await patiently(
                lambda: self._blobs.put(
                    result.SerializeToString(), operation.project_id, operation.id, kind
                )
            )
            effects = Effects(results=[(operation.id, content, key)])
            if spent is not None:
                effects.spent[operation.id] = spent
            if await patiently(lambda: self._store.finish(token, base_model, effects)):
                self._board.tell(operation.project_id, effects.results)
            else:
                await self._discard(effects)

    async def _discard(self, effects: Effects) -> None:
        """Removes objects of results that were not written."""
        for operation_id, _, key in effects.results:
            # It may have been written by a try whose answer was lost.
            if key and not await self._store.has_result(operation_id, key):
                await self._blobs.delete(key)

    @asynccontextmanager
    async def _renewed(self, operation_id: str, token: str) -> AsyncIterator[None]:
        """Keeps a lease for as long as the block runs."""

        async def renew() -> None:
            while True:
                await asyncio.sleep(RENEW_SECONDS)
                async with tolerated("tuning.leases"):
                    await self._store.renew_sample(operation_id, token)

        renewing = asyncio.create_task(renew())
        try:
            yield
        finally:
            renewing.cancel()
