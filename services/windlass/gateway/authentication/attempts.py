"""Throttling of wrong API keys by address; valid keys are never affected."""

import asyncio
import math

import grpc

from windlass.core.addresses import ClientAddresses
from windlass.core.errors import Unauthenticated, from_rpc
from windlass.core.throttle import Throttle
from windlass.gateway.authentication.authenticator import Authenticator
from windlass.gateway.authentication.credentials import MadeUpKey
from windlass.gateway.errors import HttpError
from windlass.key_cache import KnownKey

# Look-ups at once for all addresses that have to wait, and how many may stand in line.
LOOKUPS = 4
IN_LINE = 64
# For how long the connection of an address that has to wait is read no further, at most: a flood
# of requests on few connections would otherwise take the time of all others.
REST_SECONDS = 5.0


class Attempts:
    """Authenticates requests, with a 429 for addresses that send too many wrong keys."""

    def __init__(self, authenticator: Authenticator, addresses: ClientAddresses, *, allowance: int):
        self._authenticator = authenticator
        self._addresses = addresses
        self._throttle = Throttle(allowance=allowance)
        self._lookups = asyncio.Semaphore(LOOKUPS)
        self._in_line = 0

    async def authenticate(
        self, headers: dict[bytes, bytes], peer: str, *, graced: bool = False
    ) -> KnownKey:
        """The key of a request; raises HttpError 429 beside what `Authenticator` does.

        `peer` is the address of the connection; empty where it has none. `graced` is as there.

        A key that is kept as good is not counted at all; any other of an address that has to
        wait is looked up among few, so that a good one gets through.
        """
        try:
            known = self._authenticator.known(headers, graced=graced)
        except MadeUpKey as error:
            self._count(self._addresses.of(peer, headers), peer, error)
            raise
        if known is not None:
            return known
        address = self._addresses.of(peer, headers)
        waiting = self._throttle.wait(address)
        if not waiting:
            return await self._try(headers, peer, address, graced=graced)
        if self._in_line >= IN_LINE:
            raise self._too_many(waiting, peer)
        self._in_line += 1
        try:
            async with self._lookups:
                return await self._try(headers, peer, address, graced=graced)
        finally:
            self._in_line -= 1

    async def _try(
        self, headers: dict[bytes, bytes], peer: str, address: str, *, graced: bool
    ) -> KnownKey:
        try:
            return await self._authenticator.authenticate(headers, peer, graced=graced)
        except MadeUpKey as error:
            self._count(address, peer, error)
            raise
        except grpc.aio.AioRpcError as error:
            judged = from_rpc(error)
            if isinstance(judged, Unauthenticated) and judged.reason == "invalid_api_key":
                self._count(address, peer, error)
            raise

    def _count(self, address: str, peer: str, error: Exception) -> None:
        """Counts a wrong key; raises HttpError 429 for too many."""
        if waiting := self._throttle.fail(address):
            raise self._too_many(waiting, peer) from error

    def _too_many(self, seconds: float, peer: str) -> HttpError:
        # A proxy's connection has requests of others too.
        is_own = peer and not self._addresses.trusts(peer)
        return HttpError(
            429,
            "Too many wrong API keys have come from this address.",
            kind="rate_limit_error",
            code="too_many_attempts",
            headers={"retry-after": str(math.ceil(seconds))},
            rest_seconds=min(seconds, REST_SECONDS) if is_own else 0.0,
        )
