"""Builds the sessions service."""

from collections.abc import Collection

import grpc

from windlass.api.clusters.v1 import clusters_pb2, clusters_pb2_grpc
from windlass.api.sessions.v1 import sessions_pb2_grpc as rpc
from windlass.core.app import App
from windlass.core.errors import AppError, Unauthenticated, from_rpc
from windlass.metrics.tunnel import CONTROL_STREAMS
from windlass.sessions.kubernetes_access import build_access
from windlass.sessions.tunnel.agent_service import SessionsAgentServicer
from windlass.sessions.tunnel.credential_watch import CredentialWatch
from windlass.sessions.tunnel.domain import ConnectionLimits
from windlass.sessions.tunnel.pending_dials import PendingDials
from windlass.sessions.tunnel.replica_service import SessionsInternalServicer
from windlass.sessions.tunnel.replicas import Replica
from windlass.sessions.tunnel.store import RouteStore
from windlass.sessions.tunnel.tunnels import Tunnels


async def build(app: App) -> None:
    """Constructs and registers sessions."""
    await build_access(app, build_tunnels(app))


def build_tunnels(app: App) -> Tunnels:
    """Constructs and registers the tunnels alone."""
    settings = app.settings.sessions
    clusters = app.clients.stub(clusters_pb2_grpc.ClustersInternalServiceStub)

    async def authenticate(credential: bytes) -> None:
        request = clusters_pb2.AuthenticateAgentRequest(digest=credential)
        try:
            await clusters.AuthenticateAgent(request)
        except grpc.aio.AioRpcError as error:
            raise from_rpc(error) from error

    async def find_ended(credentials: Collection[bytes]) -> dict[bytes, AppError]:
        request = clusters_pb2.FindEndedCredentialsRequest(digests=credentials)
        try:
            answer = await clusters.FindEndedCredentials(request)
        except grpc.aio.AioRpcError as error:
            raise from_rpc(error) from error
        return {one.digest: Unauthenticated(one.message, reason=one.reason) for one in answer.ended}

    store, dials = RouteStore(app.database), PendingDials()
    address = settings.advertise or app.clients.address("sessions")
    replica = Replica(store, app.wake, app.clients, address)
    CONTROL_STREAMS.set_function(lambda: len(replica.controls))
    limits = ConnectionLimits(
        per_cluster=settings.max_connections_per_cluster, in_all=settings.max_connections
    )
    tunnels = Tunnels(replica, dials, store, app.wake, limits)
    credentials = CredentialWatch(app.wake, authenticate, find_ended)
    agents = SessionsAgentServicer(replica, dials, store, credentials)
    app.serve(agents, rpc.add_SessionsAgentServiceServicer_to_server)
    internal = SessionsInternalServicer(replica, tunnels, dials)
    app.serve(internal, rpc.add_SessionsInternalServiceServicer_to_server)
    app.background("tunnels", replica.run)
    return tunnels
