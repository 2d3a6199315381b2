"""/v1/organizations/{id}/networks: from where alone an organization's credentials are taken."""

from typing import Annotated

from pydantic import Field

from windlass.api.users.v1 import networks_pb2 as pb
from windlass.api.users.v1 import networks_pb2_grpc as rpc
from windlass.bounds import MAX_ORGANIZATION_NETWORKS, NETWORK_LENGTH
from windlass.core.app import App
from windlass.gateway.openai.rendering import Json
from windlass.gateway.parameters import Body
from windlass.gateway.plain import plain
from windlass.gateway.resource_router import ResourceRouter

KIND = "organization.networks"


class NewAllowedNetworks(Body):
    """The whole list."""

    networks: Annotated[
        list[Annotated[str, Field(min_length=1, max_length=NETWORK_LENGTH)]],
        Field(
            max_length=MAX_ORGANIZATION_NETWORKS,
            description="As 203.0.113.0/24 or 2001:db8::/32; none: anywhere.",
        ),
    ]
    force: Annotated[
        bool,
        Field(description="Whatever the caller's address; for administrators of the platform."),
    ] = False


def networks_router(app: App) -> ResourceRouter:
    """The routes of an organization's networks."""
    path = "/organizations/{organization_id}/networks"
    router = ResourceRouter(tags=["organizations and projects"])
    networks = app.clients.stub(rpc.AllowedNetworksServiceStub)

    @router.get(path)
    async def get_allowed_networks(organization_id: str) -> Json:
        """The networks from which alone the organization's credentials are taken."""
        request = pb.GetAllowedNetworksRequest(organization_id=organization_id)
        return plain(await networks.GetAllowedNetworks(request), KIND)

    @router.put(path)
    async def put_allowed_networks(organization_id: str, body: NewAllowedNetworks) -> Json:
        """Sets the networks (owners), for requests under way within a second."""
        request = pb.PutAllowedNetworksRequest(
            organization_id=organization_id, networks=body.networks, force=body.force
        )
        return plain(await networks.PutAllowedNetworks(request), KIND)

    return router
