"""Tells the control plane what the cluster has, as it changes."""

import asyncio
import time
from collections.abc import Awaitable, Callable

import grpc

from windlass.api.clusters.v1 import clusters_pb2 as pb
from windlass.core import telemetry
from windlass.core.backoff import Backoff
from windlass_agent.inventory.informers import ClusterInformers
from windlass_agent.inventory.items import inventory_items
from windlass_agent.inventory.sent_items import Batch, SentItems
from windlass_agent.retrying import reason_of

# A burst of changes is one report.
COALESCE_SECONDS = 0.5
# In a large and busy cluster the agent spends at most a tenth of its time on looking.
REST_PER_LOOK = 10.0

log = telemetry.logger("inventory")

Report = Callable[[pb.ReportInventoryRequest], Awaitable[None]]
Status = Callable[[], pb.SpecStatus]


class Inventory:
    """Reports what `informers` show and, with it, how the cluster's spec fares."""

    def __init__(self, informers: ClusterInformers, report: Report, status: Status):
        self._informers = informers
        self._report = report
        self._status = status
        self._news = asyncio.Event()
        self._sent = SentItems()
        self._told_status = pb.SpecStatus()
        self._sequence = 0
        self._begin = True

    def changed(self) -> None:
        """Wakes the inventory: something may differ from what was sent."""
        self._news.set()

    async def run(self, session_id: str) -> None:
        """Reports until cancelled; the control plane being away only delays it."""
        self._begin = True
        self._news.set()
        backoff = Backoff(longest=30.0)
        while True:
            await self._news.wait()
            self._news.clear()
            try:
                rest = await self._look(session_id)
            except grpc.aio.AioRpcError as error:
                # Without an answer it may have arrived, and then the next is a gap.
                self._begin = self._begin or reason_of(error) == "inventory_gap"
                log.info("inventory_report_failed", code=error.code().name, details=error.details())
                self._news.set()
                await backoff.pause()
                continue
            backoff.reset()
            await asyncio.sleep(rest)

    async def _look(self, session_id: str) -> float:
        """Sends the changes; returns how long to wait before the next look."""
        if not self._informers.settled():
            self._news.set()
            return COALESCE_SECONDS
        began = time.perf_counter()
        if self._begin:
            self._sent.forget()
            self._told_status = pb.SpecStatus()
        batches = list(self._sent.news(inventory_items(self._informers)))
        took = time.perf_counter() - began
        status = self._status()
        if not batches and (self._begin or status != self._told_status):
            batches = [Batch()]
        for batch in batches:
            await self._tell(session_id, batch, status)
        return max(COALESCE_SECONDS, took * REST_PER_LOOK)

    async def _tell(self, session_id: str, batch: Batch, status: pb.SpecStatus) -> None:
        await self._report(
            pb.ReportInventoryRequest(
                session_id=session_id,
                sequence=self._sequence + 1,
                snapshot=self._begin,
                items=batch.items,
                gone=batch.gone,
                spec_status=None if status == self._told_status else status,
            )
        )
        self._sequence += 1
        self._begin = False
        self._sent.told(batch)
        self._told_status = status
