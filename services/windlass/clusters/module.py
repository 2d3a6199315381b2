"""Builds the clusters service."""

from functools import partial

from windlass.api.clusters.v1 import clusters_pb2_grpc as rpc
from windlass.clusters.agents import ClustersAgentServicer
from windlass.clusters.arrivals import Arrivals
from windlass.clusters.scheduler import sweep
from windlass.clusters.service import ClustersInternalServicer, ClustersServicer
from windlass.clusters.store import ClusterStore
from windlass.clusters.workloads import WorkloadStore
from windlass.core.app import App


async def build(app: App) -> None:
    """Constructs and registers clusters."""
    clusters, workloads = ClusterStore(app.database), WorkloadStore(app.database)
    arrivals = Arrivals(app.database, workloads)
    app.on_stop(arrivals.close)
    app.serve(
        ClustersServicer(clusters, workloads, app.wake),
        rpc.add_ClustersServiceServicer_to_server,
    )
    app.serve(
        ClustersAgentServicer(clusters, workloads, app.wake),
        rpc.add_ClustersAgentServiceServicer_to_server,
    )
    app.serve(
        ClustersInternalServicer(clusters, workloads, arrivals, app.wake),
        rpc.add_ClustersInternalServiceServicer_to_server,
    )
    app.background("clusters.sweep", partial(sweep, clusters, workloads))
