"""Short-lived access of one project to one cluster: the tokens, and who gets one.

A token is signed and says who shows it, for which project and cluster, and until when.
What that one may do is looked up at each use, so there is nothing in it to revoke: a key
that ends, or an assignment, takes the access with it.
"""

from dataclasses import dataclass
from typing import Any

import grpc

from windlass.api.clusters.v1 import clusters_pb2, clusters_pb2_grpc
from windlass.api.sessions.v1 import sessions_pb2 as pb
from windlass.api.sessions.v1 import sessions_pb2_grpc as rpc
from windlass.bounds import MAX_ACCESS_SECONDS, MIN_ACCESS_SECONDS
from windlass.core.clock import now_seconds
from windlass.core.errors import (
    FailedPrecondition,
    InvalidArgument,
    PermissionDenied,
    Unauthenticated,
)
from windlass.core.rpc.auth import Principal, current
from windlass.core.rpc.tokens import TokenAuthority
from windlass.sessions.access.assignments import Assignments
from windlass.sessions.access.callers import Identity

DEFAULT_SECONDS = 900
TOKEN_BYTES = 2048

Context = grpc.aio.ServicerContext[Any, Any]


@dataclass(frozen=True, slots=True)
class PublicEndpoint:
    """Public address of the Kubernetes listener."""

    # `https://host:port`, and the PEM of its authority; empty for the system's.
    url: str
    ca: str


class AccessTokens:
    """Issues and verifies access tokens."""

    def __init__(self, tokens: TokenAuthority):
        self._tokens = tokens

    def issue(self, principal: Principal, cluster_id: str, *, expires_at: int) -> str:
        """A token of the caller for a cluster."""
        claims = {
            "org": principal.organization_id,
            "project": principal.require_project(),
            "key": principal.key_id,
            "cluster": cluster_id,
        }
        return self._tokens.sign_access(claims, expires_at=expires_at)

    async def read(self, token: str, cluster_id: str) -> Identity:
        """The identity in a token for a cluster; raises Unauthenticated."""
        if not token or len(token) > TOKEN_BYTES:
            raise Unauthenticated(
                "Send an access token; `windlass clusters kubeconfig` creates a kubeconfig "
                "that does."
            )
        claims = await self._tokens.verify_access(token)
        if claims["cluster"] != cluster_id:
            raise Unauthenticated("The access token is for another cluster.")
        return Identity(claims["org"], claims["project"], claims["key"])


class SessionsServicer(rpc.SessionsServiceServicer):
    """Servicer of SessionsService."""

    def __init__(
        self,
        tokens: AccessTokens,
        assignments: Assignments,
        clusters: clusters_pb2_grpc.ClustersServiceAsyncStub,
        endpoint: PublicEndpoint | None,
    ):
        self._tokens = tokens
        self._assignments = assignments
        self._clusters = clusters
        self._endpoint = endpoint

    async def CreateAccess(self, request: pb.CreateAccessRequest, context: Context) -> pb.Access:
        """Issues access to a cluster that the caller's project is assigned to."""
        principal = current()
        project_id = principal.require_project()
        seconds = request.seconds or DEFAULT_SECONDS
        if not MIN_ACCESS_SECONDS <= seconds <= MAX_ACCESS_SECONDS:
            allowed = f"{MIN_ACCESS_SECONDS} to {MAX_ACCESS_SECONDS}"
            raise InvalidArgument(f"seconds must be {allowed}.", param="seconds")
        if not principal.key_id:
            raise PermissionDenied("Access to a cluster can only be requested with an API key.")
        if self._endpoint is None:
            raise FailedPrecondition(
                "This server has no Kubernetes listener; set sessions.kubernetes.listen.",
                reason="kubernetes_access_off",
            )
        # In the caller's name: a cluster that it may not see is unknown to it.
        cluster = await self._clusters.GetCluster(
            clusters_pb2.GetClusterRequest(cluster_id=request.cluster_id)
        )
        namespace = await self._assignments.namespace(cluster.id, project_id)
        if not namespace:
            raise FailedPrecondition(
                f"This project is not assigned to the cluster {cluster.name}. An "
                "administrator can assign it with `windlass clusters assign`.",
                reason="not_assigned",
                param="cluster_id",
            )
        expires_at = now_seconds() + seconds
        return pb.Access(
            token=self._tokens.issue(principal, cluster.id, expires_at=expires_at),
            expires_at=expires_at,
            server=f"{self._endpoint.url}/clusters/{cluster.id}",
            ca=self._endpoint.ca,
            namespace=namespace,
            cluster_name=cluster.name,
        )
