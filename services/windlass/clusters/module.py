"""Builds the clusters service."""

from functools import partial

from windlass.api.clusters.v1 import clusters_pb2_grpc as rpc
from windlass.api.users.v1 import users_pb2_grpc
from windlass.clusters.leaving import CLAIMS, AssignmentsEnd
from windlass.clusters.relabelling import Relabelling
from windlass.clusters.scheduler import relabel, release, sweep
from windlass.clusters.storage.measuring import AgentCounts
from windlass.clusters.storage.stores import Stores
from windlass.clusters.storage.workload_inserts import WorkloadInserts
from windlass.clusters.transport.agent_service import ClustersAgentServicer
from windlass.clusters.transport.internal_service import ClustersInternalServicer
from windlass.clusters.transport.service import ClustersServicer
from windlass.core.app import App
from windlass.core.exporting.exporter import exports_by
from windlass.core.keyring import STACK_KEYS
from windlass.core.leaving.eraser import erases
from windlass.residency.geographies import ProjectGeographies
from windlass.tunnel.authority import gateways_authority


async def build(app: App) -> None:
    """Constructs and registers clusters."""
    told = app.settings.agents
    stores = Stores.on(app.database, credential_seconds=told.credential_seconds)
    inserts = WorkloadInserts(app.database, stores.workloads)
    app.on_stop(inserts.close)
    users = app.clients.stub(users_pb2_grpc.UsersInternalServiceStub)
    geographies = ProjectGeographies(users)
    relabelling = Relabelling(stores, geographies, app.wake)
    app.serve(
        ClustersServicer(stores, users, relabelling, app.wake),
        rpc.add_ClustersServiceServicer_to_server,
    )
    app.serve(
        ClustersAgentServicer(
            stores,
            app.wake,
            told,
            app.keyring.envelope(STACK_KEYS),
            gateways_authority=partial(gateways_authority, app.keyring),
            wrong_keys=app.settings.auth.wrong_registration_keys,
        ),
        rpc.add_ClustersAgentServiceServicer_to_server,
    )
    app.serve(
        ClustersInternalServicer(stores, inserts, geographies, app.wake),
        rpc.add_ClustersInternalServiceServicer_to_server,
    )
    erases(app, CLAIMS, AssignmentsEnd(stores.assignments, app.wake))
    exports_by(app, CLAIMS)
    app.exposition.sample("agents", AgentCounts(app.database).take)
    app.background("clusters.sweep", partial(sweep, stores))
    app.background("clusters.release", partial(release, stores, app.wake))
    app.background("clusters.relabel", partial(relabel, stores, relabelling, app.wake))
