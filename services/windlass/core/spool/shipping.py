"""Sends what a spool keeps, at least once, until it has arrived."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from pathlib import Path

import grpc

from windlass.core import telemetry
from windlass.core.backoff import Backoff
from windlass.core.spool.segments import Spool
from windlass.metrics.outbox import AGE_SECONDS

log = telemetry.logger("spool")
# Pauses after a failure, at first and at most.
RETRY_SECONDS, MAX_RETRY_SECONDS = 1.0, 10.0
LAST_SECONDS = 5.0


class SpoolShipper:
    """Drains a spool: `send` delivers the rows of one segment, which is deleted then."""

    def __init__(
        self,
        name: str,
        spool: Spool,
        send: Callable[[Path], Awaitable[None]],
        *,
        flush_seconds: float,
    ):
        self._name = name
        self._spool = spool
        self._send = send
        self._flush_seconds = flush_seconds

    async def measure(self) -> None:
        """Shows operators how old the oldest row is that has not arrived."""
        AGE_SECONDS.labels(self._name).set(await asyncio.to_thread(self._spool.age_seconds))

    async def run(self) -> None:
        """Ships until cancelled, and what is there then once more."""
        backoff = Backoff(shortest=RETRY_SECONDS, longest=MAX_RETRY_SECONDS)
        arrived = self._spool.arrived
        arrived.set()
        try:
            while True:
                await arrived.wait()
                await asyncio.sleep(self._flush_seconds)
                arrived.clear()
                if await self.ship():
                    backoff.reset()
                else:
                    arrived.set()
                    await backoff.pause()
        finally:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LAST_SECONDS):
                    await self.ship()

    async def ship(self) -> bool:
        """Sends every segment; returns False when the service did not take one."""
        self._spool.flush()
        self._spool.seal()
        await self._spool.synced()
        try:
            for path in self._spool.sealed():
                # Another process of this folder may be faster.
                with contextlib.suppress(FileNotFoundError):
                    await self._send(path)
                path.unlink(missing_ok=True)
        except grpc.aio.AioRpcError as error:
            code = error.code().name
            log.warning(
                "spool_delivery_deferred", spool=self._name, code=code, error=error.details()
            )
            return False
        return True
