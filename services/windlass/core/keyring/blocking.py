"""Calls that block, such as those of a device or an SDK: in a few threads, with a deadline."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")

SECONDS = 10.0


class BlockingCalls:
    """Threads of one keeper of keys; a call that waits for a thread has the same deadline."""

    def __init__(self, keeper: str, *, threads: int, seconds: float = SECONDS):
        self._keeper = keeper
        self._seconds = seconds
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="keys")

    async def run(self, call: Callable[[], T]) -> T:
        """Return what the call returns; raises OSError at the deadline.

        A call that has begun goes on in its thread: a device cannot be interrupted.
        """
        running = asyncio.get_running_loop().run_in_executor(self._threads, call)
        try:
            done, _ = await asyncio.wait([running], timeout=self._seconds)
        finally:
            running.cancel()
        if not done:
            raise OSError(f"{self._keeper} does not answer within {self._seconds:.0f} s")
        return running.result()
