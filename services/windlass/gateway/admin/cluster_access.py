"""/v1/clusters/{cluster_id}/access."""

from typing import Annotated

from pydantic import Field

from windlass.api.sessions.v1 import sessions_pb2 as pb
from windlass.api.sessions.v1 import sessions_pb2_grpc as rpc
from windlass.bounds import MAX_ACCESS_SECONDS
from windlass.core.app import App
from windlass.gateway.openai.rendering import Json
from windlass.gateway.parameters import Body
from windlass.gateway.plain import plain
from windlass.gateway.resource_router import ResourceRouter


class CreateAccess(Body):
    """Short-lived access to a cluster's Kubernetes API."""

    seconds: Annotated[
        int, Field(ge=0, le=MAX_ACCESS_SECONDS, description="Lifetime in seconds; 0: 15 minutes.")
    ] = 0


def cluster_access_router(app: App) -> ResourceRouter:
    """Access of people and programs to what their project runs in a cluster."""
    router = ResourceRouter(tags=["clusters"])
    sessions = app.clients.stub(rpc.SessionsServiceStub)

    @router.post("/clusters/{cluster_id}/access")
    async def create_access(cluster_id: str, body: CreateAccess | None = None) -> Json:
        """A token for kubectl and the like, and where to use it."""
        request = pb.CreateAccessRequest(cluster_id=cluster_id, seconds=body.seconds if body else 0)
        return plain(await sessions.CreateAccess(request), "cluster.access")

    return router
