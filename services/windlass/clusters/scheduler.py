"""Removes expired rows and unused assignments. Idempotent, so every process may run it."""

import asyncio

from windlass.clusters.domain import records
from windlass.clusters.relabelling import Relabelling
from windlass.clusters.storage.stores import Stores
from windlass.core.db.leases import run_loop, tolerated
from windlass.core.db.wake import Wake

SWEEP_SECONDS = 300.0
RELEASE_SECONDS = 2.0


async def sweep(stores: Stores) -> None:
    """Drops collected workloads, and keys and credentials that ended long ago."""
    while True:
        async with tolerated("clusters.sweep"):
            await stores.workloads.sweep()
            await stores.credentials.sweep()
        await asyncio.sleep(SWEEP_SECONDS)


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


async def relabel(stores: Stores, relabelling: Relabelling, wake: Wake) -> None:
    """Ends what may not be in relabelled clusters, where a call that relabels was cut off."""
    await run_loop(
        "clusters.relabel",
        wake.listen(records.WAKE_RELABELLED),
        relabelling.once,
        poll_seconds=RELEASE_SECONDS,
        resting=stores.evictions.is_settled,
    )
