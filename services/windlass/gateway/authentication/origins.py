"""Origins of keys: the networks and clients that they are taken from, and their last uses."""

import asyncio
from collections.abc import Iterable, Mapping
from itertools import islice

import grpc

from windlass.api.users.v1 import users_pb2 as pb
from windlass.api.users.v1 import users_pb2_grpc as rpc
from windlass.core import telemetry
from windlass.core.addresses import Address, ClientAddresses
from windlass.core.certificates import PresentedCertificate, presented_by
from windlass.core.errors import PermissionDenied
from windlass.core.rpc.auth import Principal
from windlass.key_cache import KnownKey

log = telemetry.logger("gateway.keys")
TELL_SECONDS = 60.0
CALL_SECONDS = 10.0
# Keys whose use is noted between two calls, and in one.
MOST_KEYS, KEYS_PER_CALL = 50_000, 2_000
# Of what proxies say of a use, which is kept with it: our own have written the end.
FORWARDED_BYTES = 1024

# The connection's address, and what proxies say of it: to be read once a minute, not each time.
_Origin = tuple[str, bytes]


class KeyOrigins:
    """Admits keys from their networks and clients alone, and tells users of their uses."""

    def __init__(self, addresses: ClientAddresses, users: rpc.UsersInternalServiceAsyncStub):
        self._addresses = addresses
        self._users = users
        self._used: dict[str, _Origin] = {}

    def admit(
        self, known: KnownKey, peer: str, headers: Mapping[bytes, bytes], own: bytes
    ) -> Principal:
        """The principal of a key that came from an address; raises PermissionDenied.

        `own` is the certificate of the connection's client; empty where it has none.
        """
        if known.networks is not None or known.organization_networks is not None:
            _require_address(known, self._addresses.client(peer, headers))
        if known.certificate_demands:
            _require(known, self.certificate(peer, headers, own))
        if known.key_id in self._used or len(self._used) < MOST_KEYS:
            forwarded = headers.get(b"x-forwarded-for", b"")
            self._used[known.key_id] = (peer, forwarded[-FORWARDED_BYTES:])
        return known.principal

    def certificate(
        self, peer: str, headers: Mapping[bytes, bytes], own: bytes
    ) -> PresentedCertificate | None:
        """The certificate of a request's client; None where it has none."""
        return presented_by(peer, headers, own, self._addresses)

    def address(self, peer: str, headers: Mapping[bytes, bytes]) -> str:
        """The address that a request came from; empty for a socket of this machine."""
        return str(self._addresses.client(peer, headers) or "")

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


def _require_address(known: KnownKey, address: Address | None) -> None:
    if not known.is_admitted_from(address):
        raise PermissionDenied(
            "The organization of this API key is used from its own networks alone, and your "
            "address is in none of them. Ask an owner of the organization.",
            reason="address_not_allowed_by_organization",
        )
    if not known.takes(address):
        raise PermissionDenied(
            "This API key is not taken from your address.", reason="address_not_allowed"
        )


def _require(known: KnownKey, presented: PresentedCertificate | None) -> None:
    if presented is None:
        raise PermissionDenied(
            "This API key is taken only from clients with a certificate.",
            reason="client_certificate_required",
        )
    if not known.admits(presented):
        raise PermissionDenied(
            "This API key is not taken from clients with your certificate.",
            reason="client_certificate_not_admitted",
        )
