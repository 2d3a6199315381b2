"""Forgets what is long over. Idempotent, so every process may do it at once."""

import asyncio

from windlass.clusters.store import ClusterStore
from windlass.clusters.workloads import WorkloadStore
from windlass.core import telemetry

SWEEP_SECONDS = 300.0

log = telemetry.logger("clusters")


async def sweep(clusters: ClusterStore, workloads: WorkloadStore) -> None:
    """Drops collected workloads and expired registration keys, until cancelled."""
    while True:
        try:
            await workloads.sweep()
            await clusters.forget_keys()
        except Exception as error:
            telemetry.LOOP_FAILURES.labels("clusters.sweep").inc()
            log.error("sweep failed", exc_info=error)
        await asyncio.sleep(SWEEP_SECONDS)
