"""The loop that has clusters bring files, and notes what became of it."""

import grpc

from windlass.api.clusters.v1 import clusters_pb2
from windlass.api.clusters.v1.clusters_pb2_grpc import ClustersInternalServiceAsyncStub
from windlass.core import telemetry
from windlass.core.errors import AppError, NotFound, from_rpc
from windlass.inference.domain import NOTHING, View
from windlass.inference.observed_state import ObservedState
from windlass.inference.prefetches.prefetch import FAILED, Prefetch, ended
from windlass.inference.prefetches.store import PrefetchStore
from windlass.inference.prefetches.workload import make_workload
from windlass.inference.workloads import Workloads

log = telemetry.logger("inference")


class PrefetchScheduler:
    """Level-triggered: any number may run at once, as a generation is the same whoever tells it."""

    def __init__(
        self,
        prefetches: PrefetchStore,
        observed: ObservedState,
        clusters: ClustersInternalServiceAsyncStub,
        workloads: Workloads,
        *,
        url_seconds: float,
    ):
        self._prefetches = prefetches
        self._observed = observed
        self._clusters = clusters
        self._workloads = workloads
        self._url_seconds = url_seconds

    async def once(self) -> bool:
        """Runs one round; does nothing until everything was heard once."""
        now, unsettled = await self._prefetches.unsettled()
        view = await self._observed.view(NOTHING) if unsettled else None
        if view is not None:
            for prefetch in unsettled:
                await self._step(prefetch, view, now)
        return False

    async def _step(self, prefetch: Prefetch, view: View, now: float) -> None:
        """Takes one step of a prefetch; the next round takes the next."""
        if prefetch.is_open:
            away = prefetch.cluster_id not in view.clusters
            permitted = away or view.permits(prefetch.cluster_id, prefetch.owner_id)
            status = view.statuses.get(prefetch.id)
            if end := ended(prefetch, status, now, is_permitted=permitted):
                await self._prefetches.finish(prefetch, *end)
                return
            if now - prefetch.urls_at > self._url_seconds:
                await self._prefetches.renew(prefetch)
                return
        if prefetch.put_generation < prefetch.generation:
            await self._tell(prefetch, view)

    async def _tell(self, prefetch: Prefetch, view: View) -> None:
        try:
            workload = await make_workload(prefetch, view, self._workloads)
            await self._clusters.PutWorkload(clusters_pb2.PutWorkloadRequest(workload=workload))
        except NotFound as error:
            await self._prefetches.finish(prefetch, FAILED, error.message)
        except grpc.aio.AioRpcError as error:
            await self._refused(prefetch, from_rpc(error))
        else:
            await self._prefetches.mark_put(prefetch)

    async def _refused(self, prefetch: Prefetch, refusal: AppError) -> None:
        """Ends what no cluster can bring; what fails otherwise is tried again in the next round."""
        if refusal.reason == "cluster_not_found":
            await self._prefetches.lose(prefetch, "The cluster was unregistered.")
        elif isinstance(refusal, NotFound):
            await self._prefetches.finish(prefetch, FAILED, "The model was deleted.")
        else:
            log.warning("prefetch_not_told", prefetch=prefetch.id, error=refusal.message)
