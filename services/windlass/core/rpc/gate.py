"""Authentication gate of a control-plane process, for all audiences that it serves."""

import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable

from windlass.api.auth.v1 import auth_pb2 as pb
from windlass.core.errors import PermissionDenied, Unauthenticated
from windlass.core.rpc import auth
from windlass.core.rpc.auth import AgentIdentity
from windlass.core.rpc.tokens import TokenAuthority

AGENT_CACHE_SECONDS = 0.8
AGENT_CACHE_SIZE = 4096
# The kinds of our own processes that an audience is of; none: any.
SERVICE_KINDS: dict["pb.Audience.ValueType", tuple[str, ...]] = {
    pb.AUDIENCE_INTERNAL: (),
    pb.AUDIENCE_GATEWAY: ("gateway",),
    pb.AUDIENCE_CONNECTING: ("gateway", "tuning"),
}


class ControlPlaneGate:
    """Admits principals signed by a gateway, enrolled agents, and our own services."""

    def __init__(
        self,
        tokens: TokenAuthority,
        authenticate_agent: Callable[[bytes], Awaitable[AgentIdentity]],
    ):
        self._tokens = tokens
        self._authenticate_agent = authenticate_agent
        # Short enough that a revoked credential ends within a second.
        self._agents: OrderedDict[bytes, tuple[AgentIdentity, float]] = OrderedDict()

    async def admit(self, rule: pb.Rule, metadata: dict[str, str]) -> None:
        """Sets the caller of this task; raises Unauthenticated when there is none."""
        if rule.audience == pb.AUDIENCE_TENANT:
            token = metadata.get("windlass-principal", "")
            if not token:
                raise Unauthenticated("Authentication required.", reason="missing_token")
            auth.enter(principal=await self._tokens.verify_principal(token))
            auth.principal_token.set(token)
            auth.client_address.set(await self._address(metadata))
        elif rule.audience in SERVICE_KINDS:
            token = metadata.get("windlass-service", "")
            if not token:
                raise Unauthenticated("Only services may make this call.", reason="missing_token")
            await self._tokens.verify_service(token, kinds=SERVICE_KINDS[rule.audience])
            auth.client_address.set(metadata.get("windlass-client", ""))
        elif rule.audience == pb.AUDIENCE_AGENT:
            auth.enter(agent=await self._agent(metadata))
        elif rule.audience != pb.AUDIENCE_ANONYMOUS:
            raise PermissionDenied("This call is not served on this listener.")

    async def _address(self, metadata: dict[str, str]) -> str:
        """The address of the caller's request, which our own processes alone may say."""
        address = metadata.get("windlass-client", "")
        if address:
            await self._tokens.verify_service(metadata.get("windlass-service", ""))
        return address

    async def _agent(self, metadata: dict[str, str]) -> AgentIdentity:
        scheme, _, credential = metadata.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not credential:
            raise Unauthenticated(
                "The agent's credential is missing; send it as a bearer token.",
                reason="missing_token",
            )
        digest = auth.digest(credential)
        cached = self._agents.get(digest)
        if cached is not None and cached[1] > time.monotonic():
            return cached[0]
        agent = await self._authenticate_agent(digest)
        self._agents[digest] = (agent, time.monotonic() + AGENT_CACHE_SECONDS)
        if len(self._agents) > AGENT_CACHE_SIZE:
            self._agents.popitem(last=False)
        return agent
