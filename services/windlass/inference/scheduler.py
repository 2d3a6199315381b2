"""The loop that brings engines in line with what is wanted."""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial

import grpc

from windlass.api.clusters.v1 import clusters_pb2
from windlass.api.clusters.v1.clusters_pb2_grpc import ClustersInternalServiceAsyncStub
from windlass.core import telemetry
from windlass.core.errors import NotFound, from_rpc
from windlass.core.ids import new_name
from windlass.inference.domain import DELETED, RUNNING, Engine, InferencePolicy, View
from windlass.inference.followed_runs import FollowedRuns
from windlass.inference.observed_state import ObservedState
from windlass.inference.planning import Planner
from windlass.inference.planning.adapters import AdapterStays
from windlass.inference.planning.scaling import Scalers
from windlass.inference.planning.waits import Waits
from windlass.inference.prefetches.store import PrefetchStore
from windlass.inference.stacks.stack import Stack
from windlass.inference.store import InferenceStore
from windlass.inference.trainings.store import EngineTrainingStore
from windlass.inference.workloads import Workloads

log = telemetry.logger("inference")
# Engines whose clusters are told of them at once; each asks where its files lie.
TOLD_AT_ONCE = 8


class InferenceScheduler:
    """Plans under a lease; every change is a row before a cluster hears of it."""

    def __init__(
        self,
        store: InferenceStore,
        observed: ObservedState,
        clusters: ClustersInternalServiceAsyncStub,
        workloads: Workloads,
        prefetches: PrefetchStore,
        trainings: EngineTrainingStore,
        followed: FollowedRuns,
        policy: InferencePolicy,
        changed: Callable[[], None],
    ):
        self._store = store
        self._observed = observed
        self._clusters = clusters
        self._workloads = workloads
        self._prefetches = prefetches
        self._trainings = trainings
        self._followed = followed
        self._policy = policy
        self._changed = changed
        self._scalers = Scalers(down_seconds=policy.scale_down_seconds)
        self._waits = Waits()
        self._stays = AdapterStays()

    async def once(self) -> bool:
        """Runs one round; does nothing while another process plans or nothing was observed yet."""
        if not self._observed.known:
            return False
        async with self._store.planning() as alone:
            if alone and await self._round():
                self._changed()
        return False

    async def _round(self) -> bool:
        rows = await self._store.rows()
        if not rows.engines and rows.wants:
            # The cluster may have come since the last poll.
            await self._observed.refresh_clusters()
        view = await self._observed.view(rows)
        if view is None:
            return False
        view = replace(view, followed=await self._followed.newest(rows.running))
        rows = replace(
            rows,
            prefetched=await self._prefetches.brought(),
            trained=await self._trainings.busy(),
        )
        new_id = partial(new_name, "eng-")
        remembered = self._scalers, self._waits, self._stays
        plan = Planner(rows, view, self._policy, new_id, *remembered).plan()
        await self._store.apply(plan)
        rows = await self._store.rows()
        view = await self._observed.view(rows) or view
        told = await self._tell_all(rows.engines, view, rows.stacks)
        return bool(told or plan.errors or plan.updates)

    async def _tell_all(
        self, engines: Iterable[Engine], view: View, stacks: Mapping[str, Stack]
    ) -> bool:
        """Tells clusters of what changed; returns True if a row changed by that.

        Engines do not wait for each other's files: each is a row and a workload of its own. One
        that fails unexpectedly fails the round once all others were told.
        """
        changed = [one for one in engines if one.put_generation < one.generation]
        # Requests wait for those that should wake.
        changed.sort(key=lambda one: not (one.sleeps and not one.asleep and one.desired == RUNNING))
        turns = asyncio.Semaphore(TOLD_AT_ONCE)

        async def tell(engine: Engine) -> bool:
            async with turns:
                return await self._tell(engine, view, stacks)

        told = await asyncio.gather(*map(tell, changed), return_exceptions=True)
        for one in told:
            if isinstance(one, BaseException):
                raise one
        return any(told)

    async def _tell(self, engine: Engine, view: View, stacks: Mapping[str, Stack]) -> bool:
        """Says it to the cluster; what fails is tried again in the next round."""
        try:
            workload = await self._workloads.make(engine, view, stacks)
            await self._clusters.PutWorkload(clusters_pb2.PutWorkloadRequest(workload=workload))
        except NotFound:
            # The next round ends the engine.
            return False
        except grpc.aio.AioRpcError as error:
            refusal = from_rpc(error)
            if refusal.reason == "cluster_not_found":
                await self._store.forget(engine)
                return True
            if refusal.reason != "stale_generation":
                log.warning("engine_create_refused", engine=engine.id, error=refusal.message)
                return False
        if engine.desired == DELETED:
            await self._store.forget(engine)
        else:
            await self._store.mark_put(engine)
        return True
