"""Rules for the addresses that a tenant may have called: none within the operator's networks."""

import re
from collections.abc import Sequence
from ipaddress import IPv6Address, ip_address, ip_network
from urllib.parse import urlsplit

from windlass.bounds import WEBHOOK_URL_LENGTH
from windlass.core.addresses import Address, Network
from windlass.core.errors import InvalidArgument

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


class AddressRules:
    """Decides on URLs and on the addresses that their hosts resolve to."""

    def __init__(self, allowed: Sequence[Network], *, allow_http: bool):
        self._allowed = tuple(allowed)
        self._schemes = ("https", "http") if allow_http else ("https",)

    def admit(self, url: str) -> None:
        """Returns if a webhook may have this URL, whatever its host resolves to later.

        Raises InvalidArgument.
        """
        schemes = " or ".join(f"{scheme}://" for scheme in self._schemes)
        if len(url) > WEBHOOK_URL_LENGTH or not _PRINTABLE.fullmatch(url):
            raise _refused(
                f"url must have at most {WEBHOOK_URL_LENGTH} printable ASCII characters."
            )
        try:
            parts = urlsplit(url)
            port, host = parts.port, parts.hostname
        except ValueError as error:
            raise _refused(f"url must be a URL that begins with {schemes}.") from error
        if parts.scheme not in self._schemes or not host or port == 0 or "\\" in url:
            raise _refused(f"url must be a URL that begins with {schemes}.")
        literal = parsed(host)
        if len(host) > _HOST_LENGTH or (literal is None and _NUMERIC.fullmatch(host)):
            raise _refused(
                f"url must name its host by at most {_HOST_LENGTH} characters or by a whole "
                "address, such as 203.0.113.7."
            )
        if "@" in parts.netloc or "#" in url:
            raise _refused("url must have neither credentials (user@) nor a fragment (#).")
        if literal is not None and not self.permits(literal):
            raise InvalidArgument(
                "url must lead to a public address. An operator can allow others in "
                "webhooks.allowed_networks.",
                reason="webhook_not_allowed",
                param="url",
            )

    def permits(self, address: Address) -> bool:
        """Returns True if a connection to this address may be made."""
        if _is_in(address, self._allowed):
            return True
        if isinstance(address, IPv6Address) and address.is_site_local:
            return False
        # Reserved are IPv4-mapped, IPv4-compatible and NAT64 addresses as well.
        special = address.is_multicast or address.is_reserved or _is_in(address, _NOT_PUBLIC)
        return address.is_global and not special


def parsed(host: str) -> Address | None:
    """The address that a host literally is; None for a name."""
    try:
        return ip_address(host)
    except ValueError:
        return None


def _is_in(address: Address, networks: Sequence[Network]) -> bool:
    return any(address.version == one.version and address in one for one in networks)


def _refused(message: str) -> InvalidArgument:
    return InvalidArgument(message, param="url")
