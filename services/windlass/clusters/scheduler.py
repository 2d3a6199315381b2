"""Removes expired rows and unused assignments. Idempotent, so every process may run it."""

import asyncio
from collections.abc import Awaitable, Callable

from windlass.clusters.domain import records
from windlass.clusters.storage.stores import Stores
from windlass.core import telemetry
from windlass.core.db.leases import run_loop
from windlass.core.db.wake import Wake
from windlass.metrics.process import LOOP_FAILURES

SWEEP_SECONDS = 300.0
RELEASE_SECONDS = 2.0

log = telemetry.logger("clusters")


async def sweep(stores: Stores) -> None:
    """Drops collected workloads, and keys and credentials that ended long ago."""

    async def once() -> None:
        await stores.workloads.sweep()
        await stores.credentials.sweep()

    await _for_ever("clusters.sweep", once, SWEEP_SECONDS)


async def release(stores: Stores, wake: Wake) -> None:
    """Tells agents to remove assignments whose last jobs have ended."""

    async def once() -> bool:
        for cluster_id in await stores.specs.release():
            wake.touch(records.cluster_topic(cluster_id))
        return False

    listener = wake.listen(records.WAKE_DRAINING)
    await run_loop(
        "clusters.release",
        listener,
        once,
        poll_seconds=RELEASE_SECONDS,
        resting=stores.specs.drains_nothing,
    )


async def _for_ever(name: str, once: Callable[[], Awaitable[None]], pause_seconds: float) -> None:
    while True:
        try:
            await once()
        except Exception as error:
            LOOP_FAILURES.labels(name).inc()
            log.error("loop_failed", loop=name, exc_info=error)
        await asyncio.sleep(pause_seconds)
