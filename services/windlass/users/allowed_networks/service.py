"""The servicer of the networks of organizations."""

from typing import Any

from windlass.api.users.v1 import networks_pb2 as pb
from windlass.api.users.v1 import networks_pb2_grpc as rpc
from windlass.bounds import MAX_ORGANIZATION_NETWORKS
from windlass.core.clock import now_seconds
from windlass.core.db.wake import Wake
from windlass.core.errors import NotFound, PermissionDenied
from windlass.core.rpc import audited
from windlass.core.rpc.auth import client_address, current
from windlass.policy import ORGANIZATION_OWNER, PLATFORM
from windlass.users.allowed_networks.domain import AllowedNetworks, NetworksChange
from windlass.users.allowed_networks.store import AllowedNetworksStore
from windlass.users.domain import KEYS_TOPIC, require_grant
from windlass.users.keys.restrictions import valid_networks


class AllowedNetworksServicer(rpc.AllowedNetworksServiceServicer):
    """AllowedNetworksService."""

    def __init__(self, networks: AllowedNetworksStore, wake: Wake):
        self._networks = networks
        self._wake = wake

    async def GetAllowedNetworks(
        self, request: pb.GetAllowedNetworksRequest, context: Any
    ) -> pb.AllowedNetworks:
        """The networks of the caller's organization."""
        organization_id = _own(request.organization_id)
        return _message(organization_id, await self._networks.get(organization_id))

    async def PutAllowedNetworks(
        self, request: pb.PutAllowedNetworksRequest, context: Any
    ) -> pb.AllowedNetworks:
        """Sets the networks of the caller's organization."""
        organization_id = _own(request.organization_id)
        require_grant(current(), ORGANIZATION_OWNER)
        is_operator = current().may(PLATFORM)
        if request.force and not is_operator:
            raise PermissionDenied(
                "Only an administrator of the platform may set force.", param="force"
            )
        texts = valid_networks(request.networks, most=MAX_ORGANIZATION_NETWORKS)
        after = AllowedNetworks(texts, now_seconds())
        change = NetworksChange(after, client_address.get(), is_operator, request.force)
        before = await self._networks.put(organization_id, change)
        audited.change(before.audited(), after.audited(), resource=organization_id)
        self._wake.touch(KEYS_TOPIC)
        return _message(organization_id, after)


def _own(organization_id: str) -> str:
    """The organization of the call; raises NotFound for another."""
    if organization_id != current().organization_id:
        also = " Name it in OpenAI-Organization too." if current().may(PLATFORM) else ""
        raise NotFound(
            f"No organization {organization_id!r} in this call.{also}", param="organization_id"
        )
    return organization_id


def _message(organization_id: str, one: AllowedNetworks) -> pb.AllowedNetworks:
    return pb.AllowedNetworks(
        organization_id=organization_id, networks=one.networks, updated_at=one.updated_at
    )
