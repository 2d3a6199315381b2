"""Rules for URLs and addresses that a tenant names: none within the operator's networks."""

import re
from collections.abc import Sequence
from ipaddress import IPv6Address, ip_address, ip_network
from urllib.parse import SplitResult, urlsplit

from windlass.core.addresses import Address, Network

# Of a name in DNS.
_HOST_LENGTH = 253
_PRINTABLE = re.compile(r"[!-~]+")
# Other spellings of an IPv4 address, such as 127.1 and 0x7f000001, which resolvers take for one.
_NUMERIC = re.compile(r"(.*\.)?([0-9]+|0x[0-9a-f]*)\.?")
# What `ipaddress` takes for global, though it leads to other places: protocol assignments with a
# metadata service among them, Azure's host, and IPv4 addresses within IPv6 ones.
_NOT_PUBLIC = tuple(
    map(
        ip_network,
        ("192.0.0.0/24", "192.88.99.0/24", "168.63.129.16/32", "2001::/23", "2002::/16"),
    )
)


class UrlRefused(ValueError):
    """A URL that no request is sent to; the text says what such a URL must do."""


class OutboundAddresses:
    """Decides which addresses may be connected to: public ones, and an operator's own."""

    def __init__(self, allowed: Sequence[Network]):
        self._allowed = tuple(allowed)

    def permits(self, address: Address) -> bool:
        """Returns True if a connection to this address may be made."""
        if _is_in(address, self._allowed):
            return True
        if isinstance(address, IPv6Address) and address.is_site_local:
            return False
        # Reserved are IPv4-mapped, IPv4-compatible and NAT64 addresses as well.
        special = address.is_multicast or address.is_reserved or _is_in(address, _NOT_PUBLIC)
        return address.is_global and not special


def checked_url(url: str, *, schemes: Sequence[str], length: int) -> SplitResult:
    """Returns the parts of a URL that every client reads alike; raises UrlRefused."""
    begin = " or ".join(f"{scheme}://" for scheme in schemes)
    if len(url) > length or not _PRINTABLE.fullmatch(url):
        raise UrlRefused(f"must have at most {length} printable ASCII characters")
    try:
        parts = urlsplit(url)
        port, host = parts.port, parts.hostname
    except ValueError as error:
        raise UrlRefused(f"must be a URL that begins with {begin}") from error
    if parts.scheme not in schemes or not host or port == 0 or "\\" in url:
        raise UrlRefused(f"must be a URL that begins with {begin}")
    if len(host) > _HOST_LENGTH or (parsed(host) is None and _NUMERIC.fullmatch(host)):
        raise UrlRefused(
            f"must name its host by at most {_HOST_LENGTH} characters or by a whole address, "
            "such as 203.0.113.7"
        )
    if "@" in parts.netloc or "#" in url:
        raise UrlRefused("must have neither credentials (user@) nor a fragment (#)")
    return parts


def parsed(host: str) -> Address | None:
    """The address that a host literally is; None for a name."""
    try:
        return ip_address(host)
    except ValueError:
        return None


def _is_in(address: Address, networks: Sequence[Network]) -> bool:
    return any(address.version == one.version and address in one for one in networks)
