"""Authorization of a request by a key that is cached, in a bare loop; nothing else runs.

That is all that a chat pays: its credential is digested and found, its permission, its client's
address and its model are judged, the address by the key's networks and by its organization's. The
peer is a key that is not narrowed, in the same run. The services behind are stubs: a cached key
asks them nothing, and `users` tells that nothing changes.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from ipaddress import ip_network
from typing import Any

from tests.bench.figures import Figure, Options, at_most

from windlass.api.rbac.v1 import rbac_pb2
from windlass.api.users.v1 import users_pb2
from windlass.bounds import MAX_ORGANIZATION_NETWORKS
from windlass.core.addresses import ClientAddresses
from windlass.core.rpc import auth
from windlass.core.rpc.auth import Principal
from windlass.core.rpc.model_scope import ModelScope
from windlass.gateway.authentication.authenticator import Authenticator
from windlass.gateway.authentication.origins import KeyOrigins
from windlass.policy import PROJECT_MEMBER, narrowed, permissions_of

# Keys are trusted for 0.9 s after a beat; the loop lets one come in between.
BEAT_SECONDS, ROUNDS = 0.05, 100
PERMISSION, MODEL = "inference.invoke", "ft:llama-3:acme:pirate:x1Y2z3A4"
# Clients that have the key, one after the other.
PEERS = tuple(f"10.1.2.{number}" for number in range(64))
SCOPES = (PERMISSION, "files.read", "models.read")
NETWORKS = ("192.0.2.0/24", "2001:db8::/32", "198.51.100.0/24", "10.0.0.0/8")
# As many as an organization may have.
OFFICES = (
    "10.1.0.0/16",
    *(f"172.16.{number}.0/24" for number in range(MAX_ORGANIZATION_NETWORKS - 1)),
)
MODELS = ("llama-3", "llama-3-70b", "qwen-3", "mistral-*", "ft:qwen-3:*", "ft:llama-3:*")


async def measure(options: Options) -> list[Figure]:
    """See the module."""
    batches = 4 if options.quick else 40
    bare = await _microseconds(_answer(), batches)
    narrow = await _microseconds(_answer(SCOPES, NETWORKS, MODELS, OFFICES), batches)
    return [
        at_most("cached_authorization", narrow, "µs", 5).beside("key without bounds", bare),
    ]


def _answer(
    scopes: tuple[str, ...] = (),
    networks: tuple[str, ...] = (),
    models: tuple[str, ...] = (),
    offices: tuple[str, ...] = (),
) -> rbac_pb2.AuthenticateResponse:
    """What rbac says of a key with these restrictions."""
    permissions = narrowed(permissions_of((PROJECT_MEMBER,)), scopes)
    principal = Principal(
        "org-a", "proj-a", "ann", "key_a", (PROJECT_MEMBER,), permissions, ModelScope.of(models)
    )
    found = principal.to_proto()
    return rbac_pb2.AuthenticateResponse(
        principal=found, networks=networks, organization_networks=offices
    )


class _Services:
    """Stands for rbac, and for users, whose beats say that no key changes."""

    def __init__(self, answer: rbac_pb2.AuthenticateResponse):
        self._answer = answer

    async def Authenticate(self, request: Any, timeout: float) -> rbac_pb2.AuthenticateResponse:
        return self._answer

    def WatchKeys(self, request: users_pb2.WatchKeysRequest) -> "_Beats":
        return _Beats()


class _Beats:
    """The call of a watch."""

    async def __aiter__(self) -> AsyncIterator[users_pb2.KeyBeat]:
        while True:
            yield users_pb2.KeyBeat()
            await asyncio.sleep(BEAT_SECONDS)

    def cancel(self) -> None:
        """Nothing is left to do."""


async def _microseconds(answer: rbac_pb2.AuthenticateResponse, batches: int) -> float:
    """The fastest batch's time of one authorization."""
    services: Any = _Services(answer)
    authenticator = Authenticator(services, services)
    origins = KeyOrigins(ClientAddresses([ip_network("127.0.0.0/8")]), services)
    headers = {b"authorization": f"Bearer {auth.new_secret('wl-')}".encode()}

    def authorize(peer: str) -> None:
        known = authenticator.known(headers, graced=True)
        if known is None:
            raise AssertionError("the key is not kept")
        caller = origins.admit(known, peer, headers, b"")
        if PERMISSION not in caller.permissions or not caller.may_use(MODEL):
            raise AssertionError("the caller is refused")

    watching = asyncio.create_task(authenticator.watch())
    try:
        while not authenticator.trusted:
            await asyncio.sleep(BEAT_SECONDS)
        await authenticator.authenticate(headers)
        taken = []
        for _ in range(batches):
            taken.append(_batch(authorize))
            await asyncio.sleep(BEAT_SECONDS)
        return min(taken)
    finally:
        watching.cancel()
        await asyncio.wait([watching])


def _batch(work: Callable[[str], None]) -> float:
    began = time.perf_counter()
    for _ in range(ROUNDS):
        for peer in PEERS:
            work(peer)
    return (time.perf_counter() - began) / (ROUNDS * len(PEERS)) * 1e6
