"""Being asked to stop: once politely, twice for good."""

import asyncio
import contextlib
import signal
from collections.abc import Coroutine
from typing import Any, TypeVar

from windlass_agent.runner.protocol.outcome import Stopped

T = TypeVar("T")


class StopSignal:
    """SIGTERM as two events: `requested` with the first, `forced` with the second."""

    def __init__(self) -> None:
        self.requested = asyncio.Event()
        self.forced = asyncio.Event()

    def install(self) -> None:
        """Takes over SIGTERM and SIGINT in the running loop."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.receive)

    def receive(self) -> None:
        """Counts one signal."""
        if self.requested.is_set():
            self.forced.set()
        self.requested.set()


async def unless(event: asyncio.Event, work: Coroutine[Any, Any, T]) -> T:
    """Awaits `work`; when `event` comes first, cancels it and raises Stopped."""
    task = asyncio.ensure_future(work)
    signalled = asyncio.ensure_future(event.wait())
    try:
        await asyncio.wait({task, signalled}, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            return task.result()
        raise Stopped
    finally:
        for each in (task, signalled):
            each.cancel()
        with contextlib.suppress(asyncio.CancelledError, Exception):
            await task
