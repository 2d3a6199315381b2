"""Wake-ups: tells waiting loops, here and in other processes, that rows changed.

A hint, never a fact: a woken loop reads the rows, and polls slowly anyway.
NOTIFY inside the writing transaction would take a global lock to its end
(twenty times slower under load), so one side connection sends coalesced ones.
"""

import asyncio
import contextlib
import math
from collections import defaultdict

import psycopg

from windlass.core import telemetry
from windlass.core.backoff import Backoff
from windlass.core.config import libpq_url
from windlass.core.descriptors import readable

log = telemetry.logger("wake")
_COALESCE_SECONDS = 0.002
_CHANNEL = "windlass_wake"
# The part of a beat by which a loop's clock may wake somebody too soon.
_EARLY = 0.05


class Wake:
    """Named topics; `touch` wakes every `Listener` of the topic, in any process."""

    def __init__(self, database_url: str):
        self._url = libpq_url(database_url)
        self._listeners: dict[str, set[Listener]] = defaultdict(set)
        self._pending: set[str] = set()
        self._dirty = asyncio.Event()
        self._backoff = Backoff(shortest=0.5, longest=5.0)
        # The connection whose notices woke everyone here when they were written.
        self._sender = 0

    def touch(self, topic: str) -> None:
        """Wakes the topic's listeners soon; call it after the commit."""
        self._wake(topic)
        self.tell_others(topic)

    def tell_others(self, topic: str) -> None:
        """Wakes the listeners of other processes, where those of this one know already."""
        self._pending.add(topic)
        self._dirty.set()

    def listen(self, *topics: str) -> "Listener":
        """A listener that is set initially, so that its owner reads once at the start."""
        return Listener(self._listeners, topics)

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
                await self._backoff.pause()

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
            self._backoff.reset()
            # What happened while the channel was away is unknown: let everyone look.
            self._wake_all()
            while True:
                async for notice in connection.notifies(timeout=0):
                    if notice.pid != self._sender:
                        self._wake(notice.payload)
                # psycopg would poll ten times a second.
                await readable(connection.fileno())


class Listener:
    """One waiter on some topics."""

    def __init__(self, listeners: dict[str, set["Listener"]], topics: tuple[str, ...]):
        self._listeners = listeners
        self._topics = set[str]()
        self._event = asyncio.Event()
        self._event.set()
        for topic in topics:
            self.add(topic)

    def add(self, topic: str) -> None:
        """Listens to a topic too."""
        self._topics.add(topic)
        self._listeners[topic].add(self)

    def remove(self, topic: str) -> None:
        """Listens to a topic no more."""
        self._topics.discard(topic)
        self._listeners[topic].discard(self)
        # Topics of single jobs come and go.
        if not self._listeners[topic]:
            del self._listeners[topic]

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

    async def wait_for_beat(self, seconds: float) -> bool:
        """Waits like `wait`, at most to the next of the moments that lie `seconds` apart.

        Loops that wait for the same moments wake together, so that an idle process wakes seldom.
        """
        now = asyncio.get_running_loop().time()
        # A moment that is all but here has been waited for.
        passed = math.floor(now / seconds + _EARLY)
        return await self.wait((passed + 1) * seconds - now)

    def close(self) -> None:
        """Stops listening."""
        for topic in tuple(self._topics):
            self.remove(topic)
