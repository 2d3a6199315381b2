"""Sends to addresses that tenants chose: one request, one status, and nothing else of the answer.

No redirect is followed.
"""

import asyncio
from collections.abc import Mapping

import aiohttp

from windlass.core.errors import InvalidArgument
from windlass.core.outbound.connections import OutboundConnections, why_failed
from windlass.core.outbound.urls import AddressRules

# For everything: name, connection, TLS, request and status.
SECONDS = 10.0


class Unreachable(Exception):
    """No HTTP response; the text says why, in words that a tenant may read."""


class Receivers:
    """Posts to URLs that the rules admit."""

    def __init__(self, rules: AddressRules):
        self._rules = rules
        headers = {"User-Agent": "Windlass-Webhooks", "Content-Type": "application/json"}
        self._connections = OutboundConnections(rules, headers)

    async def post(self, tenant: str, url: str, body: bytes, headers: Mapping[str, str]) -> int:
        """The status of the answer, whose body is not read; raises Unreachable."""
        return await self.send(tenant, "POST", url, body, headers)

    async def send(
        self, tenant: str, method: str, url: str, body: bytes, headers: Mapping[str, str]
    ) -> int:
        """The same with another method; names are looked up for the tenant."""
        try:
            # Once more: the operator's mind may have changed since the webhook was made.
            self._rules.admit(url)
            with self._connections.of(tenant) as session:
                async with (
                    asyncio.timeout(SECONDS),
                    session.request(
                        method,
                        url,
                        data=body,
                        headers=headers,
                        allow_redirects=False,
                    ) as answer,
                ):
                    return answer.status
        except InvalidArgument as error:
            raise Unreachable("the URL is not allowed here") from error
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise Unreachable(why_failed(error, url, SECONDS)) from error

    async def stream(
        self, tenant: str, host: str, port: int, *, tls: bool
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """A connection of its own to a host that the rules admit; raises OSError."""
        return await self._connections.stream(tenant, host, port, tls=tls)

    async def close(self) -> None:
        """Ends what is under way."""
        await self._connections.close()
