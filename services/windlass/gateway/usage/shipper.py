"""Sends spooled usage to the usage service: at least once, which its ids make exactly once."""

import asyncio
import contextlib
from itertools import islice
from pathlib import Path

import grpc
import msgspec

from windlass.api.usage.v1 import usage_pb2 as pb
from windlass.api.usage.v1 import usage_pb2_grpc as rpc
from windlass.core import telemetry
from windlass.gateway.usage.spool import UsageLine, UsageSpool, read_segment
from windlass.metrics.outbox import AGE_SECONDS

log = telemetry.logger("gateway.usage")
BATCH = 1000
FLUSH_SECONDS = 0.5
RETRY_SECONDS = 2.0
LAST_SECONDS = 5.0


class Shipper:
    """Drains a spool."""

    def __init__(self, spool: UsageSpool, usage: rpc.UsageInternalServiceAsyncStub):
        self._spool = spool
        self._usage = usage

    async def measure(self) -> None:
        """Shows operators how old the oldest usage is that has not arrived."""
        AGE_SECONDS.labels("usage").set(await asyncio.to_thread(self._spool.age_seconds))

    async def run(self) -> None:
        """Ships until cancelled, and what is there then once more."""
        try:
            self._spool.arrived.set()
            while True:
                await self._spool.arrived.wait()
                await asyncio.sleep(FLUSH_SECONDS)
                self._spool.arrived.clear()
                if not await self.ship():
                    self._spool.arrived.set()
                    await asyncio.sleep(RETRY_SECONDS)
        finally:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LAST_SECONDS):
                    await self.ship()

    async def ship(self) -> bool:
        """Sends every segment; False when the service did not take one."""
        self._spool.flush()
        self._spool.seal()
        try:
            for path in self._spool.sealed():
                await self._ship_segment(path)
        except grpc.aio.AioRpcError as error:
            log.warning("usage_delivery_deferred", code=error.code().name, details=error.details())
            return False
        return True

    async def _ship_segment(self, path: Path) -> None:
        lines = read_segment(path)
        while batch := list(islice(lines, BATCH)):
            try:
                await self._usage.Record(pb.RecordRequest(records=map(_message, batch)))
            except grpc.aio.AioRpcError as error:
                if error.code() != grpc.StatusCode.INVALID_ARGUMENT:
                    raise
                # It would be refused for ever and hold up what follows: set it aside.
                log.error("usage_segment_refused", segment=path.name, details=error.details())
                path.rename(path.with_suffix(".refused"))
                return
        path.unlink(missing_ok=True)


def _message(line: UsageLine) -> pb.UsageRecord:
    return pb.UsageRecord(**msgspec.structs.asdict(line))
