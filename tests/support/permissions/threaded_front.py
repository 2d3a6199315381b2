"""The front door over all services in a thread of this process, for tests that have no loop."""

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.support.processes.windlass import Windlass, free_port
from tests.support.services.front import MODULES, running_front

SOCKET = "front.sock"
EVERY_SERVICE = (*MODULES, "inference")


@contextmanager
def threaded_front(database_url: str, data: Path, **sections: Any) -> Iterator[Windlass]:
    """Runs an installation without an agent until the end of the block."""
    windlass, ready, stop = Windlass(data, free_port()), threading.Event(), threading.Event()

    async def serve() -> None:
        http = {"port": windlass.port}
        async with running_front(database_url, data, EVERY_SERVICE, http=http, **sections):
            ready.set()
            await asyncio.to_thread(stop.wait)

    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(asyncio.run, serve())
        running.add_done_callback(lambda _: ready.set())
        try:
            ready.wait()
            if running.done():
                running.result()
            yield windlass
        finally:
            stop.set()
        running.result()
