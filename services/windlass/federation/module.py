"""Builds the federation service."""

from functools import partial

from windlass.api.clusters.v1 import clusters_pb2_grpc
from windlass.api.federation.v1 import federation_pb2_grpc as rpc
from windlass.api.jobs.v1 import jobs_pb2_grpc
from windlass.core.app import App
from windlass.core.db.leases import run_loop
from windlass.core.exporting.exporter import exports_by
from windlass.core.leaving.eraser import erases
from windlass.federation.domain import OWNER
from windlass.federation.leaving import CLAIMS
from windlass.federation.scheduler import (
    ObjectPlacer,
    ObjectStatuses,
    Telling,
    WorkerLivenessSweeper,
)
from windlass.federation.service import FederationAgentServicer
from windlass.federation.store import WAKE_OWED, WAKE_WAITING, FederationStore
from windlass.workload_statuses import StatusFollower


async def build(app: App) -> None:
    """Serves what agents tell, and runs the loops."""
    store = FederationStore(app.database, app.wake)
    clusters = app.clients.stub(clusters_pb2_grpc.ClustersInternalServiceStub)
    jobs = app.clients.stub(jobs_pb2_grpc.JobsInternalServiceStub)
    most = app.settings.jobs.max_attempts
    app.serve(FederationAgentServicer(store), rpc.add_FederationAgentServiceServicer_to_server)
    erases(app, CLAIMS)
    exports_by(app, CLAIMS)
    statuses = StatusFollower(OWNER, clusters, ObjectStatuses(store, max_attempts=most).apply)
    app.background("federation statuses", statuses.follower.run)
    app.add_check("federation.statuses", statuses.follower.check)
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
