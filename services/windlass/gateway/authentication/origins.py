"""Origins of keys: the networks that they are taken from, and where each was used last."""

import asyncio
from collections.abc import Iterable, Mapping
from itertools import islice

import grpc

from windlass.api.users.v1 import users_pb2 as pb
from windlass.api.users.v1 import users_pb2_grpc as rpc
from windlass.core import telemetry
from windlass.core.addresses import ClientAddresses
from windlass.core.errors import PermissionDenied
from windlass.core.rpc.auth import Principal
from windlass.key_cache import KnownKey

log = telemetry.logger("gateway.keys")
TELL_SECONDS = 60.0
CALL_SECONDS = 10.0
# Keys whose use is noted between two calls, and in one.
MOST_KEYS, KEYS_PER_CALL = 50_000, 2_000

# The connection's address, and what proxies say of it: to be read once a minute, not each time.
_Origin = tuple[str, bytes]


class KeyOrigins:
    """Admits keys from their networks alone, and tells users when and where they were used."""

    def __init__(self, addresses: ClientAddresses, users: rpc.UsersInternalServiceAsyncStub):
        self._addresses = addresses
        self._users = users
        self._used: dict[str, _Origin] = {}

    def admit(self, known: KnownKey, peer: str, headers: Mapping[bytes, bytes]) -> Principal:
        """The principal of a key that came from an address; raises PermissionDenied."""
        if known.networks and not known.takes(self._addresses.client(peer, headers)):
            raise PermissionDenied(
                "This API key is not taken from your address.", reason="address_not_allowed"
            )
        if known.key_id in self._used or len(self._used) < MOST_KEYS:
            self._used[known.key_id] = (peer, headers.get(b"x-forwarded-for", b""))
        return known.principal

    async def run(self) -> None:
        """Tells of uses until cancelled; what cannot be told is told later."""
        while True:
            await asyncio.sleep(TELL_SECONDS)
            await self.tell()

    async def tell(self) -> None:
        """Tells of the uses since the last call."""
        used, self._used = self._used, {}
        waiting = iter(used.items())
        while some := list(islice(waiting, KEYS_PER_CALL)):
            try:
                await self._users.RecordKeyUse(self._message(some), timeout=CALL_SECONDS)
            except grpc.aio.AioRpcError as error:
                log.warning("key_uses_untold", code=error.code().name, keys=len(some))
                self._used = dict(some) | self._used

    def _message(self, used: Iterable[tuple[str, _Origin]]) -> pb.RecordKeyUseRequest:
        return pb.RecordKeyUseRequest(
            uses=[pb.KeyUse(key_id=key, address=self._named(*origin)) for key, origin in used]
        )

    def _named(self, peer: str, forwarded: bytes) -> str:
        return str(self._addresses.client(peer, {b"x-forwarded-for": forwarded}) or "")
