"""Restrictions of a key beside its role: scopes, networks and an end; pure.

A key is never wider than the one that it was made with, also when either changes later.
"""

from collections.abc import Iterable
from dataclasses import replace
from functools import lru_cache
from ipaddress import IPv4Network, IPv6Network, ip_network

from windlass.bounds import MAX_KEY_NETWORKS, MAX_KEY_SCOPES
from windlass.core.errors import InvalidArgument
from windlass.policy import PERMISSIONS, permissions_of
from windlass.users.domain import ApiKey

Network = IPv4Network | IPv6Network


def valid_scopes(names: Iterable[str], role: str) -> tuple[str, ...]:
    """Permissions of a role, sorted; raises InvalidArgument."""
    found = sorted(set(names))
    if len(found) > MAX_KEY_SCOPES:
        raise InvalidArgument(f"scopes may have {MAX_KEY_SCOPES} entries.", param="scopes")
    if unknown := [name for name in found if name not in PERMISSIONS]:
        raise InvalidArgument(
            f"{unknown[0][:100]!r} is not a permission. See docs/reference/permissions.md.",
            param="scopes",
        )
    if beyond := sorted(set(found) - permissions_of((role,))):
        raise InvalidArgument(
            f"The role {role} does not grant {', '.join(beyond)}. Leave it out, or choose a role "
            "that does.",
            param="scopes",
        )
    return tuple(found)


def valid_networks(texts: Iterable[str]) -> tuple[str, ...]:
    """Networks in their canonical form, sorted; raises InvalidArgument."""
    found = {_network(text) for text in texts}
    if len(found) > MAX_KEY_NETWORKS:
        raise InvalidArgument(f"networks may have {MAX_KEY_NETWORKS} entries.", param="networks")
    return tuple(sorted(map(str, found)))


def _network(text: str) -> Network:
    try:
        network = ip_network(text.strip())
    except ValueError as error:
        raise InvalidArgument(
            f"{text[:100]!r} is not a network. Write one as 10.0.0.0/8, 203.0.113.7 or "
            "2001:db8::/32, without bits set beyond its prefix.",
            param="networks",
        ) from error
    if isinstance(network, IPv6Network) and network.network_address.ipv4_mapped is not None:
        raise InvalidArgument(
            f"Write the IPv4-mapped network {text[:100]!r} as the IPv4 network that it is.",
            param="networks",
        )
    return network


def inherit(key: ApiKey, parent: ApiKey) -> ApiKey:
    """A new key with what it does not say taken from its parent, and within it.

    Raises InvalidArgument for one that would be wider.
    """
    ends = [end for end in (key.expires_at, parent.expires_at) if end]
    made = replace(
        key,
        scopes=key.scopes or _granted(parent.scopes, key.role),
        networks=key.networks or parent.networks,
        expires_at=min(ends, default=0),
    )
    if parent.scopes and not made.scopes:
        raise InvalidArgument(
            f"The role {key.role} has none of the scopes of the key that makes it.", param="role"
        )
    require_within(made, parent)
    return made


def require_change(before: ApiKey, after: ApiKey, bound: ApiKey) -> None:
    """Raises InvalidArgument for a key that becomes wider than it was, beyond another."""
    if not _has_scopes_of(after, before):
        _require_scopes(after, bound)
    if not _has_networks_of(after, before):
        _require_networks(after, bound)
    if not _ends_with(after, before):
        _require_end(after, bound)


def require_within(key: ApiKey, bound: ApiKey) -> None:
    """Raises InvalidArgument for a key that is wider than another in scopes, networks or end."""
    _require_scopes(key, bound)
    _require_networks(key, bound)
    _require_end(key, bound)


def _has_scopes_of(key: ApiKey, bound: ApiKey) -> bool:
    return not bound.scopes or (bool(key.scopes) and set(key.scopes) <= set(bound.scopes))


def _has_networks_of(key: ApiKey, bound: ApiKey) -> bool:
    return not bound.networks or (bool(key.networks) and _within(key.networks, bound.networks))


def _ends_with(key: ApiKey, bound: ApiKey) -> bool:
    return not bound.expires_at or 0 < key.expires_at <= bound.expires_at


def _require_scopes(key: ApiKey, bound: ApiKey) -> None:
    if not _has_scopes_of(key, bound):
        raise InvalidArgument(
            f"scopes must be among those of the key {bound.id}: {', '.join(bound.scopes)}.",
            param="scopes",
        )


def _require_networks(key: ApiKey, bound: ApiKey) -> None:
    if not _has_networks_of(key, bound):
        raise InvalidArgument(
            f"networks must lie within those of the key {bound.id}: {', '.join(bound.networks)}.",
            param="networks",
        )


def _require_end(key: ApiKey, bound: ApiKey) -> None:
    if not _ends_with(key, bound):
        raise InvalidArgument(
            f"The key must expire no later than the key {bound.id}.", param="expires_in"
        )


def cut(key: ApiKey, bound: ApiKey) -> ApiKey | None:
    """The part of a key that lies within another; None where nothing does."""
    scopes, networks = key.scopes, key.networks
    if not _has_scopes_of(key, bound):
        mine = key.scopes or _granted(bound.scopes, key.role)
        scopes = tuple(name for name in mine if name in bound.scopes)
    if not _has_networks_of(key, bound):
        networks = _overlap(key.networks, bound.networks) if key.networks else bound.networks
    if (bound.scopes and not scopes) or (bound.networks and not networks):
        return None
    ends = [end for end in (key.expires_at, bound.expires_at) if end]
    return replace(key, scopes=scopes, networks=networks, expires_at=min(ends, default=0))


def _granted(scopes: tuple[str, ...], role: str) -> tuple[str, ...]:
    return tuple(name for name in scopes if name in permissions_of((role,)))


def _overlap(mine: tuple[str, ...], bound: tuple[str, ...]) -> tuple[str, ...]:
    # Of two networks that overlap, one lies within the other.
    found = {one for one in mine if _within((one,), bound)}
    found |= {one for one in bound if _within((one,), mine)}
    return tuple(sorted(found))


@lru_cache(maxsize=4096)
def _parsed(text: str) -> Network:
    return ip_network(text)


def _within(inner: Iterable[str], outer: Iterable[str]) -> bool:
    around = [_parsed(text) for text in outer]
    return all(any(_is_subnet(_parsed(text), network) for network in around) for text in inner)


def _is_subnet(inner: Network, outer: Network) -> bool:
    if isinstance(inner, IPv4Network):
        return isinstance(outer, IPv4Network) and inner.subnet_of(outer)
    return isinstance(outer, IPv6Network) and inner.subnet_of(outer)
