"""Wake-ups: tells waiting loops, here and in other processes, that rows changed.

A hint, never a fact: whoever wakes reads the rows, and polls slowly anyway.
NOTIFY inside the writing transaction would take a global lock to its end
(twenty times slower under load), so one side connection sends coalesced ones.
"""

import asyncio
import contextlib
from collections import defaultdict

import psycopg

from windlass.core import telemetry
from windlass.core.config import libpq_url

log = telemetry.logger("wake")
_COALESCE_SECONDS = 0.002
_CHANNEL = "windlass_wake"


class Wake:
    """Named topics; `touch` wakes every `Listener` of the topic, in any process."""

    def __init__(self, database_url: str):
        self._url = libpq_url(database_url)
        self._listeners: dict[str, set[Listener]] = defaultdict(set)
        self._pending: set[str] = set()
        self._dirty = asyncio.Event()
        # The connection whose notices woke everyone here when they were written.
        self._sender = 0

    def touch(self, topic: str) -> None:
        """Wakes the topic's listeners soon; call it after the commit."""
        self._wake(topic)
        self._pending.add(topic)
        self._dirty.set()

    def listen(self, *topics: str) -> "Listener":
        """A listener that is set initially, so that its owner reads once at the start."""
        listener = Listener(self, topics)
        for topic in topics:
            self._listeners[topic].add(listener)
        return listener

    def forget(self, listener: "Listener") -> None:
        """Ends a listener."""
        for topic in listener.topics:
            self._listeners[topic].discard(listener)
            # Topics of single jobs come and go.
            if not self._listeners[topic]:
                del self._listeners[topic]

    def _wake(self, topic: str) -> None:
        for listener in tuple(self._listeners.get(topic, ())):
            listener.set()

    def _wake_all(self) -> None:
        for topic in tuple(self._listeners):
            self._wake(topic)

    async def run(self) -> None:
        """Carries topics between processes until cancelled; reconnects for ever."""
        while True:
            try:
                async with asyncio.TaskGroup() as group:
                    group.create_task(self._send())
                    group.create_task(self._receive())
            except* (psycopg.Error, OSError) as errors:
                log.warning("wake_channel_lost", error=str(errors.exceptions[0]))
                await asyncio.sleep(0.5)

    async def _connect(self) -> psycopg.AsyncConnection:
        return await psycopg.AsyncConnection.connect(self._url, autocommit=True)

    async def _send(self) -> None:
        async with await self._connect() as connection:
            self._sender = connection.info.backend_pid
            while True:
                await self._dirty.wait()
                await asyncio.sleep(_COALESCE_SECONDS)
                self._dirty.clear()
                topics, self._pending = self._pending, set()
                for topic in topics:
                    await connection.execute("SELECT pg_notify(%s, %s)", (_CHANNEL, topic))

    async def _receive(self) -> None:
        async with await self._connect() as connection:
            await connection.execute(f"LISTEN {_CHANNEL}")
            # What happened while the channel was away is unknown: let everyone look.
            self._wake_all()
            while True:
                async for notice in connection.notifies(timeout=0):
                    if notice.pid != self._sender:
                        self._wake(notice.payload)
                await _readable(connection.fileno())


async def _readable(descriptor: int) -> None:
    """Waits until the socket is readable; psycopg would poll ten times a second."""
    loop = asyncio.get_running_loop()
    ready = asyncio.Event()
    loop.add_reader(descriptor, ready.set)
    try:
        await ready.wait()
    finally:
        loop.remove_reader(descriptor)


class Listener:
    """One waiter on some topics."""

    def __init__(self, wake: Wake, topics: tuple[str, ...]):
        self.topics = topics
        self._wake = wake
        self._event = asyncio.Event()
        self._event.set()

    def set(self) -> None:
        """Wakes the waiter, now or at its next wait."""
        self._event.set()

    async def wait(self, timeout: float) -> bool:
        """Waits up to `timeout` seconds; returns True if touched since the last wait."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                await self._event.wait()
        touched = self._event.is_set()
        self._event.clear()
        return touched

    def close(self) -> None:
        """Stops listening."""
        self._wake.forget(self)
