"""Detection of a client that disconnects, at almost no cost for short requests."""

import asyncio
from collections.abc import Awaitable, Callable

from windlass.gateway.asgi import Receive

# Before this a request is not worth the task that watches its connection.
DELAY_SECONDS = 0.05


class DisconnectWatch:
    """Cancels a task when its client leaves, which `happened` tells.

    `before` is awaited first, in which the task may end by itself.
    """

    __slots__ = ("_handle", "_receive", "_task", "_watcher", "before", "happened")

    def __init__(self, receive: Receive, task: asyncio.Task[object]):
        self.happened = False
        self.before: Callable[[], Awaitable[None]] | None = None
        self._receive = receive
        self._task = task
        self._watcher: asyncio.Task[None] | None = None
        self._handle: asyncio.TimerHandle | None = None

    def __enter__(self) -> "DisconnectWatch":
        self._handle = self._task.get_loop().call_later(DELAY_SECONDS, self._start)
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        if self.happened:
            self._task.uncancel()

    def stop(self) -> None:
        """Ends the watch: from here on the server itself will say `disconnect`."""
        if self._handle is not None:
            self._handle.cancel()
        if self._watcher is not None:
            self._watcher.cancel()

    def _start(self) -> None:
        self._watcher = asyncio.create_task(self._watch())

    async def _watch(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self.happened = True
        if self.before is not None:
            await self.before()
        self._task.cancel()
