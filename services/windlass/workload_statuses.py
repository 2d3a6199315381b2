"""Statuses of an owner's workloads, followed from clusters."""

import time
from collections.abc import AsyncIterable, Awaitable, Callable, Sequence
from dataclasses import dataclass
from itertools import islice

from windlass.api.clusters.v1 import clusters_pb2 as pb
from windlass.api.clusters.v1.clusters_pb2_grpc import ClustersInternalServiceAsyncStub
from windlass.core import telemetry
from windlass.core.backoff import doubled
from windlass.core.rpc.following import Follower
from windlass.metrics.process import LOOP_FAILURES

log = telemetry.logger("statuses")
# Statuses that are applied in one call.
BATCH = 50
# Pauses before a status that failed is applied again, at first and at most.
RETRY_SECONDS, MAX_RETRY_SECONDS = 1.0, 60.0
# How long those that failed may keep the next message waiting.
RETRYING_SECONDS = 2.0

Apply = Callable[[Sequence[pb.WorkloadStatus]], Awaitable[None]]


@dataclass(slots=True)
class _Failed:
    """A status of a batch that failed."""

    status: pb.WorkloadStatus
    # Of the status alone, and the monotonic time of the next try.
    failures: int = 0
    due: float = 0.0


class StatusFollower:
    """Follows `clusters.WatchStatus`; level-triggered, so that any number may follow.

    `apply` takes some statuses. Where it raises, each of them is applied alone; one that fails
    alone keeps no other waiting, and is tried again with pauses that grow to a minute.
    """

    def __init__(self, owner: str, clusters: ClustersInternalServiceAsyncStub, apply: Apply):
        self.follower = Follower("statuses", self._watch, self.take)
        self._owner = owner
        self._clusters = clusters
        self._apply = apply
        self._failed: dict[str, _Failed] = {}

    async def take(self, delta: pb.StatusDelta) -> None:
        """Applies what a change says, and what failed before and is due again."""
        statuses = iter(delta.statuses)
        while batch := list(islice(statuses, BATCH)):
            for status in batch:
                self._failed.pop(status.workload_id, None)
            try:
                await self._apply(batch)
            except Exception:
                self._failed |= {one.workload_id: _Failed(one) for one in batch}
        if self._failed:
            await self._retry()

    async def _retry(self) -> None:
        started = time.monotonic()
        due = [one for one in self._failed.values() if one.due <= started]
        error: Exception | None = None
        # Those that have not failed alone may be good.
        for failed in sorted(due, key=lambda one: one.failures):
            if (now := time.monotonic()) - started > RETRYING_SECONDS:
                break
            try:
                await self._apply([failed.status])
                del self._failed[failed.status.workload_id]
            except Exception as raised:
                error = raised
                failed.due = now + doubled(
                    RETRY_SECONDS, failed.failures, longest=MAX_RETRY_SECONDS
                )
                failed.failures += 1
        if error is not None:
            LOOP_FAILURES.labels(f"{self._owner} statuses").inc()
            log.error("statuses_not_applied", statuses=len(self._failed), exc_info=error)

    def _watch(self) -> AsyncIterable[pb.StatusDelta]:
        request = pb.WatchStatusRequest(owner=self._owner)
        return self._clusters.WatchStatus(request, wait_for_ready=True)
