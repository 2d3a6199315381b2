"""The wait for results: many polls, one read of the rows each time that some may be there."""

import asyncio
import time
from collections import OrderedDict, defaultdict
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager, suppress

from windlass.core.db import Database
from windlass.core.db.coalescing import Coalescer
from windlass.core.db.leases import tolerated
from windlass.core.db.wake import Wake
from windlass.tuning.storage.log import KeptResult, outcomes

WAKE_RESULTS = "tuning results"
# A wake-up is a hint that may be lost.
LOOK_SECONDS = 2.0
# Of one statement.
READ_AT_ONCE = 500
# Outcomes in memory, the bytes of each, and for how long.
KNOWN, KNOWN_BYTES, KNOWN_SECONDS = 1024, 8192, 60.0
_WAITING = KeptResult("queued", None, "")

Key = tuple[str, str]


class ResultBoard:
    """Outcomes of operations, for whoever waits; a wait holds no connection to the database."""

    def __init__(self, database: Database, wake: Wake):
        self._database = database
        self._listener = wake.listen(WAKE_RESULTS)
        self._read = Coalescer("tuning outcomes", self._read_many, abreast=2)
        self._wake = wake
        self._waiting: dict[Key, set[asyncio.Future[KeptResult]]] = defaultdict(set)
        # Who waits for any result.
        self._curious: set[asyncio.Event] = set()
        # What this process knows by itself; the rest is read.
        self._known: OrderedDict[Key, tuple[KeptResult, float]] = OrderedDict()

    def expect(self, project_id: str, operation_id: str) -> None:
        """Notes an operation that was written here just now."""
        if (project_id, operation_id) not in self._known:
            self._know((project_id, operation_id), _WAITING)

    def tell(self, project_id: str, results: Sequence[tuple[str, bytes | None, str]]) -> None:
        """Hands out results that have just been written, here and to other processes."""
        for operation_id, content, object_key in results:
            key, outcome = (project_id, operation_id), KeptResult("done", content, object_key)
            self._hand_out(key, outcome)
            if len(content or b"") <= KNOWN_BYTES:
                self._know(key, outcome)
            else:
                self._known.pop(key, None)
        self._rouse()
        self._wake.tell_others(WAKE_RESULTS)

    @contextmanager
    def news(self) -> Iterator[Callable[[float], Awaitable[None]]]:
        """Yields a wait, at most so many seconds, until some results may have been written since.

        A wake-up is a hint, and may be of any project.
        """
        event = asyncio.Event()
        self._curious.add(event)

        async def wait(seconds: float) -> None:
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await event.wait()

        try:
            yield wait
        finally:
            self._curious.discard(event)

    def _rouse(self) -> None:
        for event in self._curious:
            event.set()

    def _recall(self, key: Key) -> KeptResult | None:
        found, at = self._known.pop(key, (None, 0.0))
        return found if time.monotonic() - at < KNOWN_SECONDS else None

    def _know(self, key: Key, outcome: KeptResult) -> None:
        self._known[key] = outcome, time.monotonic()
        self._known.move_to_end(key)
        if len(self._known) > KNOWN:
            self._known.popitem(last=False)

    async def wait(self, project_id: str, operation_id: str, seconds: float) -> KeptResult | None:
        """The outcome of an operation, `queued` if it has none in time; None: no such operation."""
        key = (project_id, operation_id)
        future: asyncio.Future[KeptResult] = asyncio.get_running_loop().create_future()
        # Before the first look, so that nothing can come between.
        self._waiting[key].add(future)
        try:
            # Each is told once from memory: a later poll reads what became of it.
            found = self._recall(key)
            if found is None or (found.state == "queued" and seconds <= 0):
                found = await self._read(key)
            if found is None or found.state != "queued" or seconds <= 0:
                return found
            try:
                async with asyncio.timeout(seconds):
                    return await future
            except TimeoutError:
                return found
        finally:
            self._waiting[key].discard(future)
            if not self._waiting[key]:
                del self._waiting[key]

    async def run(self) -> None:
        """Reads what is waited for whenever woken, until cancelled."""
        while True:
            await self._listener.wait(LOOK_SECONDS)
            self._rouse()
            async with tolerated("tuning.results"):
                keys = list(self._waiting)
                for start in range(0, len(keys), READ_AT_ONCE):
                    await self._tell(keys[start : start + READ_AT_ONCE])

    async def _tell(self, keys: Sequence[Key]) -> None:
        for key, outcome in (await outcomes(self._database, keys)).items():
            if outcome.state != "queued":
                self._hand_out(key, outcome)

    def _hand_out(self, key: Key, outcome: KeptResult) -> None:
        for future in self._waiting.get(key, ()):
            if not future.done():
                future.set_result(outcome)

    async def _read_many(self, wanted: Sequence[Key]) -> Sequence[KeptResult | None]:
        found = await outcomes(self._database, wanted)
        return [found.get(key) for key in wanted]
