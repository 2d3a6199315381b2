"""Detection of a client that disconnects, at almost no cost for short requests."""

import asyncio
from collections.abc import Awaitable, Callable

from windlass.gateway.asgi import Receive

# Before this a request is not worth the task that watches its connection.
DELAY_SECONDS = 0.05


class DisconnectWatch:
    """Cancels the task that opened it when the client leaves; `happened` tells why.

    `before` is awaited first, in which the task may end by itself.
    """

    __slots__ = ("_handle", "_receive", "_task", "_watcher", "before", "happened")

    def __init__(self, receive: Receive):
        self.happened = False
        self.before: Callable[[], Awaitable[None]] | None = None
        self._receive = receive
        self._task: asyncio.Task[object] | None = None
        self._watcher: asyncio.Task[None] | None = None
        self._handle: asyncio.TimerHandle | None = None

    def __enter__(self) -> "DisconnectWatch":
        self._task = asyncio.current_task()
        self._handle = asyncio.get_running_loop().call_later(DELAY_SECONDS, self._start)
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        if self.happened and self._task is not None:
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
        if self._task is not None:
            self._task.cancel()
