"""Builds the federation service."""

import asyncio
from functools import partial

import grpc

from windlass.api.clusters.v1 import clusters_pb2, clusters_pb2_grpc
from windlass.api.federation.v1 import federation_pb2_grpc as rpc
from windlass.api.jobs.v1 import jobs_pb2_grpc
from windlass.core import telemetry
from windlass.core.app import App
from windlass.core.db.leases import run_loop
from windlass.federation.domain import OWNER
from windlass.federation.scheduler import Following, ObjectPlacer, Telling, WorkerLivenessSweeper
from windlass.federation.service import FederationAgentServicer
from windlass.federation.store import WAKE_OWED, WAKE_WAITING, FederationStore
from windlass.metrics.process import LOOP_FAILURES

RECONNECT_SECONDS = 0.5

log = telemetry.logger("federation")


async def build(app: App) -> None:
    """Serves what agents tell, and runs the loops."""
    store = FederationStore(app.database, app.wake)
    clusters = app.clients.stub(clusters_pb2_grpc.ClustersInternalServiceStub)
    jobs = app.clients.stub(jobs_pb2_grpc.JobsInternalServiceStub)
    most = app.settings.jobs.max_attempts
    app.serve(FederationAgentServicer(store), rpc.add_FederationAgentServiceServicer_to_server)
    app.background(
        "federation statuses", partial(follow, Following(store, max_attempts=most), clusters)
    )
    for name, once, topic, poll_seconds in (
        ("federation placement", ObjectPlacer(store, clusters, jobs).once, WAKE_WAITING, 1.0),
        ("federation telling", Telling(store, clusters, max_attempts=most).once, WAKE_OWED, 1.0),
        (
            "federation liveness",
            WorkerLivenessSweeper(store, clusters, app.settings).once,
            "clusters",
            2.0,
        ),
    ):
        listener, resting = app.wake.listen(topic), store.is_empty
        loop = partial(run_loop, name, listener, once, poll_seconds=poll_seconds, resting=resting)
        app.background(name, loop)


async def follow(
    following: Following, clusters: clusters_pb2_grpc.ClustersInternalServiceAsyncStub
) -> None:
    """Follows statuses until cancelled; a lost stream is opened again and begins with all."""
    while True:
        try:
            watch = clusters.WatchStatus(clusters_pb2.WatchStatusRequest(owner=OWNER))
            async for delta in watch:
                if delta.statuses:
                    await following.take(delta.statuses)
        except grpc.aio.AioRpcError as error:
            log.info("status_stream_lost", error=error.details())
        except Exception as error:
            LOOP_FAILURES.labels("federation statuses").inc()
            log.error("status_batch_failed", exc_info=error)
        await asyncio.sleep(RECONNECT_SECONDS)
