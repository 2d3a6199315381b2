"""Documents of issuers: small, over https, from permitted addresses, without redirects."""

import asyncio
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from ssl import SSLContext
from typing import Any

import aiohttp
import orjson
from yarl import URL

from windlass.core.addresses import Address, Network
from windlass.core.outbound.addresses import OutboundAddresses, UrlRefused, checked_url, parsed
from windlass.core.outbound.connections import OutboundConnections, why_failed

URL_LENGTH = 2048
# For a name, a connection and all bytes.
SECONDS = 5.0
# At once; who finds no turn in time fails like one whose issuer does not respond.
FETCHES = 32
_PART_BYTES = 2**14
_PORTS = {"https": 443, "http": 80}
_HEADERS = {
    "User-Agent": "Windlass-OIDC",
    "Accept": "application/json",
    "Accept-Encoding": "identity",
}


class NotFetchable(Exception):
    """No document from a URL; the text says why, in words that a tenant may read."""

    # What the server answered with instead; 0 where it did not.
    status = 0


class _AllowedAddresses(OutboundAddresses):
    """The networks of an operator alone: on others http lets anybody write an issuer's keys."""

    def __init__(self, allowed: Sequence[Network]):
        super().__init__(allowed)
        self._networks = tuple(allowed)

    def permits(self, address: Address) -> bool:
        """Returns True if a connection to this address may be made."""
        return any(address.version == one.version and address in one for one in self._networks)


class DocumentFetcher:
    """Fetches for owners: over https from public addresses, and by http too from allowed ones."""

    def __init__(self, allowed: Sequence[Network], *, tls: SSLContext | None = None):
        """`tls` says whom to trust, by default what the system does."""
        everywhere, here = OutboundAddresses(allowed), _AllowedAddresses(allowed)
        self._addresses: dict[str, OutboundAddresses] = {"https": everywhere}
        if allowed:
            self._addresses["http"] = here
        self._connections = {
            scheme: OutboundConnections(addresses, _HEADERS, tls=tls)
            for scheme, addresses in self._addresses.items()
        }
        self._turns = asyncio.Semaphore(FETCHES)

    def admit(self, url: str) -> URL:
        """The URL as it is sent, if it may be fetched from, whatever its host resolves to.

        Raises UrlRefused.
        """
        parts = checked_url(url, schemes=tuple(self._addresses), length=URL_LENGTH)
        literal = parsed(parts.hostname or "")
        if literal is not None and not self._addresses[parts.scheme].permits(literal):
            raise UrlRefused(
                "must lead to a public address; an operator can allow others in "
                "oidc.allowed_networks"
            )
        try:
            sent = URL(url, encoded=True)
        except ValueError as error:
            raise UrlRefused("must be a URL that can be read") from error
        named = (parts.scheme, parts.hostname, parts.port or _PORTS[parts.scheme])
        if (sent.scheme, sent.host, sent.port) != named:
            # What is checked is what the client connects to.
            raise UrlRefused("must be a URL that can be read in one way alone")
        return sent

    async def fetch_json(self, owner: str, url: str, most: int, **call: Any) -> dict[str, Any]:
        """The JSON object at a URL; `call` is as in `fetch`. Raises NotFetchable."""
        try:
            found = orjson.loads(await self.fetch(owner, url, most, **call))
        except ValueError as error:
            raise NotFetchable(f"{url} is not JSON") from error
        if not isinstance(found, dict):
            raise NotFetchable(f"{url} is not a JSON object")
        return found

    async def fetch(
        self,
        owner: str,
        url: str,
        most: int,
        *,
        headers: Mapping[str, str] | None = None,
        form: str | None = None,
    ) -> bytes:
        """The bytes at a URL, `most` at most, with POST where there is a form to send.

        Raises NotFetchable.
        """
        sent = dict(headers or {})
        if form is not None:
            sent["Content-Type"] = "application/x-www-form-urlencoded"
        try:
            target = self.admit(url)
            async with asyncio.timeout(SECONDS), self._turns:
                return await self._answer(owner, target, most, headers=sent, data=form)
        except UrlRefused as error:
            raise NotFetchable(f"{url[:URL_LENGTH]} {error}") from error
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise NotFetchable(why_failed(error, url, SECONDS)) from error

    async def _answer(self, owner: str, url: URL, most: int, **sent: Any) -> bytes:
        method = "GET" if sent["data"] is None else "POST"
        with self._connections[url.scheme].of(owner) as session:
            async with session.request(method, url, allow_redirects=False, **sent) as answer:
                if answer.status != HTTPStatus.OK:
                    refusal = NotFetchable(f"{url} answered with the status {answer.status}")
                    refusal.status = answer.status
                    raise refusal
                if answer.headers.get("Content-Encoding", "identity") != "identity":
                    raise NotFetchable(f"{url} is compressed, though nobody asked for that")
                found = bytearray()
                async for part in answer.content.iter_chunked(_PART_BYTES):
                    found += part
                    if len(found) > most:
                        raise NotFetchable(f"{url} has more than {most} bytes")
                return bytes(found)

    async def close(self) -> None:
        """Ends what is under way."""
        for one in self._connections.values():
            await one.close()
