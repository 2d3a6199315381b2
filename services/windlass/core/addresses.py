"""Addresses of clients: the peer's, or the one that a trusted proxy reports."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

Network = IPv4Network | IPv6Network
Address = IPv4Address | IPv6Address
# Of a forwarded list that is longer, the rest was not written by our proxies.
HOPS = 16
# Of an IPv6 address that ends as an IPv4 one; and addresses whose form is remembered.
_LONGEST, _REMEMBERED = 45, 4096
# A client with one IPv6 address usually has all of its network.
IPV6_PREFIX = 64


@dataclass(frozen=True, slots=True)
class NetworkRanges:
    """Networks as their first and last addresses, of which each request asks."""

    four: tuple[tuple[int, int], ...]
    six: tuple[tuple[int, int], ...]

    @classmethod
    def of(cls, networks: Iterable[Network]) -> "NetworkRanges | None":
        """The ranges of some networks; None for none."""
        ends: dict[int, list[tuple[int, int]]] = {4: [], 6: []}
        for one in networks:
            ends[one.version].append((int(one.network_address), int(one.broadcast_address)))
        return cls(tuple(ends[4]), tuple(ends[6])) if ends[4] or ends[6] else None

    def contain(self, address: Address) -> bool:
        """Returns True if an address lies in one of them."""
        number = int(address)
        for first, last in self.four if address.version == 4 else self.six:
            if first <= number <= last:
                return True
        return False


class ClientAddresses:
    """Tells clients apart by their addresses."""

    def __init__(self, trusted_proxies: Iterable[Network] = ()):
        self._trusted = NetworkRanges.of(trusted_proxies)

    def trusts(self, peer: str) -> bool:
        """Returns True if a peer is one of the proxies whose `X-Forwarded-For` counts."""
        found = _parse(peer)
        return found is not None and self._is_trusted(found)

    def of(self, peer: str, headers: Mapping[bytes, bytes]) -> str:
        """The client of a request: an IPv4 address, or an IPv6 network of 64 bits."""
        client = self.client(peer, headers)
        return group(peer if client is None else str(client))

    def client(self, peer: str, headers: Mapping[bytes, bytes]) -> Address | None:
        """The address of a request's client; None for a socket of this machine."""
        client = _parse(peer)
        if client is None or not self._is_trusted(client):
            return client
        forwarded = headers.get(b"x-forwarded-for", b"").decode("latin-1")
        # Each proxy appends the address that it saw: only the last ones are written by ours.
        for entry in reversed(forwarded.rsplit(",", HOPS)):
            named = _parse(entry.strip())
            if named is None:
                break
            client = named
            if not self._is_trusted(named):
                break
        return client

    def _is_trusted(self, address: Address) -> bool:
        return self._trusted is not None and self._trusted.contain(address)


def group(peer: str) -> str:
    """The key that counts as one client: an IPv4 address, or an IPv6 network of 64 bits."""
    address = _parse(peer)
    if isinstance(address, IPv6Address):
        return str(ip_network((address, IPV6_PREFIX), strict=False))
    return str(address or peer)


def _parse(text: str) -> Address | None:
    """An address; an IPv4-mapped IPv6 address becomes IPv4."""
    text = text.partition("%")[0].strip("[]")
    return _address(text) if len(text) <= _LONGEST else None


@lru_cache(maxsize=_REMEMBERED)
def _address(text: str) -> Address | None:
    try:
        address = ip_address(text)
    except ValueError:
        return None
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        return address.ipv4_mapped
    return address
