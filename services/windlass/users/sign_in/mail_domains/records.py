"""TXT records of DNS, by which organizations prove domains."""

from collections.abc import Sequence
from typing import Protocol

import dns.asyncresolver
import dns.exception
import dns.nameserver
import dns.resolver

from windlass.core.errors import Unavailable

RECORD_PREFIX = "_windlass"
VALUE_PREFIX = "windlass-verification="
SECONDS = 5.0
# Of one name; more are some mistake.
_MOST = 100


class TxtRecords(Protocol):
    """Port to DNS."""

    async def of(self, name: str) -> frozenset[str]:
        """The texts of a name, none where it is not there; raises Unavailable."""


class DnsRecords:
    """Records by the resolvers of this machine, or by named ones."""

    def __init__(self, servers: Sequence[tuple[str, int]] = ()):
        self._servers = servers

    async def of(self, name: str) -> frozenset[str]:
        """See the port."""
        try:
            answer = await self._resolver().resolve(name, "TXT", lifetime=SECONDS, search=False)
        except (dns.resolver.NXDOMAIN, dns.resolver.NoAnswer):
            return frozenset()
        except dns.exception.DNSException as error:
            raise Unavailable(f"DNS does not answer for {name}. Try again later.") from error
        texts = (b"".join(row.strings).decode(errors="replace") for row in list(answer)[:_MOST])
        return frozenset(texts)

    def _resolver(self) -> dns.asyncresolver.Resolver:
        # Made for each question: a machine without resolvers serves everything else.
        resolver = dns.asyncresolver.Resolver(configure=not self._servers)
        if self._servers:
            resolver.nameservers = [
                dns.nameserver.Do53Nameserver(address, port) for address, port in self._servers
            ]
        return resolver


def record_name(domain: str) -> str:
    """The name of the record that proves a domain."""
    return f"{RECORD_PREFIX}.{domain}"


def record_value(token: str) -> str:
    """The text of the record."""
    return VALUE_PREFIX + token
