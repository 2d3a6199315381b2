"""Addresses of clients: the peer's, or the one that a trusted proxy reports."""

from bisect import bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from ipaddress import (
    IPv4Address,
    IPv4Network,
    IPv6Address,
    IPv6Network,
    collapse_addresses,
    ip_address,
    ip_network,
)
from typing import TypeVar

Network = IPv4Network | IPv6Network
OneKind = TypeVar("OneKind", IPv4Network, IPv6Network)
Address = IPv4Address | IPv6Address
# Of a forwarded list that is longer, the rest was not written by our proxies.
HOPS = 16
# Of an IPv6 address that ends as an IPv4 one; and addresses whose form is remembered.
_LONGEST, _REMEMBERED = 45, 4096
_REMEMBERED_LISTS = 1024
# A client with one IPv6 address usually has all of its network.
IPV6_PREFIX = 64


@dataclass(frozen=True, slots=True)
class _Ends:
    """The first addresses of ranges that do not meet, in order, and their last ones."""

    first: tuple[int, ...]
    last: tuple[int, ...]

    @classmethod
    def of(cls, networks: Iterable[OneKind]) -> "_Ends":
        """The ends of networks, of which one within another is left out."""
        found = sorted(collapse_addresses(networks))
        return cls(
            tuple(int(one.network_address) for one in found),
            tuple(int(one.broadcast_address) for one in found),
        )


@dataclass(frozen=True, slots=True)
class NetworkRanges:
    """Networks as their first and last addresses, of which each request asks."""

    four: _Ends
    six: _Ends

    @classmethod
    def of(cls, networks: Iterable[Network]) -> "NetworkRanges | None":
        """The ranges of some networks; None for none."""
        known = list(networks)
        four = [one for one in known if isinstance(one, IPv4Network)]
        six = [one for one in known if isinstance(one, IPv6Network)]
        return cls(_Ends.of(four), _Ends.of(six)) if known else None

    def contain(self, address: Address) -> bool:
        """Returns True if an address lies in one of them."""
        number = int(address)
        ends = self.four if address.version == 4 else self.six
        before = bisect_right(ends.first, number)
        return before > 0 and number <= ends.last[before - 1]


@lru_cache(maxsize=_REMEMBERED_LISTS)
def ranges_of(texts: tuple[str, ...]) -> NetworkRanges | None:
    """The ranges of networks as `10.0.0.0/8`; one object for all keys that have the same."""
    return NetworkRanges.of(map(ip_network, texts))


class ClientAddresses:
    """Tells clients apart by their addresses."""

    def __init__(self, trusted_proxies: Iterable[Network] = ()):
        self._trusted = NetworkRanges.of(trusted_proxies)

    def trusts(self, peer: str) -> bool:
        """Returns True if a peer is one of the proxies whose `X-Forwarded-For` counts."""
        found = address_of(peer)
        return found is not None and self._is_trusted(found)

    def of(self, peer: str, headers: Mapping[bytes, bytes]) -> str:
        """The client of a request: an IPv4 address, or an IPv6 network of 64 bits."""
        client = self.client(peer, headers)
        return group(peer if client is None else str(client))

    def client(self, peer: str, headers: Mapping[bytes, bytes]) -> Address | None:
        """The address of a request's client; None for a socket of this machine."""
        client = address_of(peer)
        if client is None or not self._is_trusted(client):
            return client
        forwarded = headers.get(b"x-forwarded-for", b"").decode("latin-1")
        # Each proxy appends the address that it saw: only the last ones are written by ours.
        for entry in reversed(forwarded.rsplit(",", HOPS)):
            named = address_of(_without_port(entry.strip()))
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
    address = address_of(peer)
    if isinstance(address, IPv6Address):
        return str(ip_network((address, IPV6_PREFIX), strict=False))
    return str(address or peer)


def _without_port(text: str) -> str:
    """The host of what a proxy has written, to which some add the client's port (RFC 7239, 6)."""
    if text.startswith("["):
        return text[1:].partition("]")[0]
    host, _, port = text.partition(":")
    return host if port.isdigit() else text


def address_of(text: str) -> Address | None:
    """An address, None for what is none; an IPv4-mapped IPv6 address becomes IPv4."""
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
