"""Work that takes longer than its callers wait, and that they share."""

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine
from typing import Any

from windlass.core import telemetry
from windlass.core.errors import Unavailable

log = telemetry.logger("tuning")
# Within what a client waits for an answer.
WAIT_SECONDS = 25.0
# Of all projects, and of one: it leaves room for others.
AT_ONCE, OF_A_PROJECT = 4, 2


class SharedWork:
    """Work by key: whoever asks for the same waits for the same, and may come back for it."""

    def __init__(self, *, wait_seconds: float = WAIT_SECONDS) -> None:
        self._wait_seconds = wait_seconds
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._busy: Counter[str] = Counter()
        self._room = asyncio.Semaphore(AT_ONCE)

    async def done(
        self, project_id: str, key: str, work: Callable[[], Coroutine[Any, Any, None]]
    ) -> None:
        """Returns once the work of a key is done; raises what it raises.

        Raises Unavailable `still_being_made` where that takes longer, or the project has as much
        under way as it may: ask again.
        """
        task = self._tasks.get(key)
        if task is None:
            if self._busy[project_id] >= OF_A_PROJECT:
                raise _later()
            self._busy[project_id] += 1
            task = self._tasks[key] = asyncio.create_task(self._in_turn(work), name=key)
            task.add_done_callback(lambda ended: self._forget(project_id, key, ended))
        await asyncio.wait([task], timeout=self._wait_seconds)
        if not task.done():
            raise _later()
        await task

    async def close(self) -> None:
        """Ends what is under way; it begins anew when it is asked for."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _in_turn(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        async with self._room:
            await work()

    def _forget(self, project_id: str, key: str, task: asyncio.Task[None]) -> None:
        del self._tasks[key]
        self._busy[project_id] -= 1
        if not self._busy[project_id]:
            del self._busy[project_id]
        # Nobody may be there any more to hear of it.
        if not task.cancelled() and (error := task.exception()) is not None:
            log.warning("tuning_transfer_failed", key=key, error=repr(error))


def _later() -> Unavailable:
    return Unavailable("It is being made still; ask again.", reason="still_being_made")
