"""Restrictions of a key beside its role: scopes, networks, models and an end; pure.

A key is never wider than the one that it was made with, also when either changes later.
"""

import operator
import re
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import lru_cache
from ipaddress import IPv4Network, IPv6Network, ip_network
from typing import Any

from windlass.bounds import (
    KEY_MODELS_LENGTH,
    MAX_KEY_MODELS,
    MAX_KEY_NETWORKS,
    MAX_KEY_SCOPES,
    MODEL_PATTERN_LENGTH,
)
from windlass.core.errors import InvalidArgument
from windlass.core.rpc.model_scope import ANY, NOT, ModelScope, is_within
from windlass.policy import PERMISSIONS, permissions_of
from windlass.users.domain import ApiKey

# Of what a project's list says of its models.
ALLOW_LIST, DENY_LIST = "allow_list", "deny_list"
Network = IPv4Network | IPv6Network
# Characters of models' names; an asterisk ends a beginning of names, and none is of all names.
_MODEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/-]*\*?", re.ASCII)


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


def valid_networks(texts: Iterable[str], *, most: int = MAX_KEY_NETWORKS) -> tuple[str, ...]:
    """Networks in their canonical form, sorted; raises InvalidArgument."""
    found = {_network(text) for text in texts}
    if len(found) > most:
        raise InvalidArgument(f"networks may have {most} entries.", param="networks")
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


def valid_models(
    patterns: Iterable[str],
    param: str = "models",
    *,
    most: int = MAX_KEY_MODELS,
    length: int = KEY_MODELS_LENGTH,
) -> tuple[str, ...]:
    """Names and beginnings of names of models, sorted; raises InvalidArgument."""
    found = sorted(set(patterns))
    if len(found) > most or sum(map(len, found)) > length:
        raise InvalidArgument(
            f"{param} may have {most} entries of {length} characters in all.", param=param
        )
    for text in found:
        if len(text) > MODEL_PATTERN_LENGTH or not _MODEL.fullmatch(text):
            raise InvalidArgument(
                f"{text[:100]!r} is no model's name, nor the beginning of names. Write llama-3 or "
                "ft:llama-3:*, and nothing for any model.",
                param=param,
            )
    return tuple(found)


def models_within(
    key: ApiKey, mode: str | None, model_ids: Iterable[str] | None
) -> tuple[str, ...]:
    """Patterns of the models that a key may use in a project with this policy, or with none."""
    own, listed = ModelScope.of(key.models), tuple(model_ids or ())
    if mode == ALLOW_LIST:
        # A list of none is not the absence of a list.
        bound = ModelScope.of(listed or [NOT + ANY])
    else:
        bound = ModelScope.of(NOT + one for one in listed)
    if own is None or bound is None:
        return (own or bound or ModelScope(())).patterns
    return own.within(bound).patterns


def inherit(key: ApiKey, parent: ApiKey) -> ApiKey:
    """A new key with what it does not say taken from its parent, and within it.

    Raises InvalidArgument for one that would be wider.
    """
    ends = [end for end in (key.expires_at, parent.expires_at) if end]
    said: dict[str, Any] = {name: _said(name, key, parent) for name in _PARTS}
    made = replace(key, **said, expires_at=min(ends, default=0))
    if parent.scopes and not made.scopes:
        raise InvalidArgument(
            f"The role {key.role} has none of the scopes of the key that makes it.", param="role"
        )
    require_within(made, parent)
    return made


def require_change(before: ApiKey, after: ApiKey, bound: ApiKey) -> None:
    """Raises InvalidArgument for a key that becomes wider than it was, beyond another."""
    for name in _PARTS:
        if not _lies_within(name, after, before):
            _require_part(name, after, bound)
    if not _ends_with(after, before):
        _require_end(after, bound)


def require_within(key: ApiKey, bound: ApiKey) -> None:
    """Raises InvalidArgument for a key that is wider than another in a list, or ends later."""
    for name in _PARTS:
        _require_part(name, key, bound)
    _require_end(key, bound)


def cut(key: ApiKey, bound: ApiKey) -> ApiKey | None:
    """The part of a key that lies within another; None where nothing does."""
    lists: dict[str, Any] = {name: _overlap(name, key, bound) for name in _PARTS}
    if any(getattr(bound, name) and not left for name, left in lists.items()):
        return None
    ends = [end for end in (key.expires_at, bound.expires_at) if end]
    return replace(key, **lists, expires_at=min(ends, default=0))


def _lies_within(name: str, key: ApiKey, bound: ApiKey) -> bool:
    """Returns True if each entry of a list lies within one of the other's, which may have none."""
    mine, around = getattr(key, name), getattr(bound, name)
    is_part = _PARTS[name]
    return not around or (
        bool(mine) and all(any(is_part(inner, outer) for outer in around) for inner in mine)
    )


def _overlap(name: str, key: ApiKey, bound: ApiKey) -> tuple[str, ...]:
    if _lies_within(name, key, bound):
        return tuple(getattr(key, name))
    mine, around, is_part = _said(name, key, bound), getattr(bound, name), _PARTS[name]
    # Of two entries that overlap, one lies within the other.
    found = {one for one in mine if any(is_part(one, outer) for outer in around)}
    found |= {one for one in around if any(is_part(one, inner) for inner in mine)}
    return tuple(sorted(found))


def _said(name: str, key: ApiKey, parent: ApiKey) -> tuple[str, ...]:
    """The entries of a list, or those of the parent where it has none."""
    given: tuple[str, ...] = getattr(parent, name)
    if name == "scopes":
        given = tuple(one for one in given if one in permissions_of((key.role,)))
    return getattr(key, name) or given


def _ends_with(key: ApiKey, bound: ApiKey) -> bool:
    return not bound.expires_at or 0 < key.expires_at <= bound.expires_at


def _require_part(name: str, key: ApiKey, bound: ApiKey) -> None:
    if not _lies_within(name, key, bound):
        raise InvalidArgument(
            f"{name} must lie within those of the key {bound.id}: "
            f"{', '.join(getattr(bound, name))}.",
            param=name,
        )


def _require_end(key: ApiKey, bound: ApiKey) -> None:
    if not _ends_with(key, bound):
        raise InvalidArgument(
            f"The key must expire no later than the key {bound.id}.", param="expires_in"
        )


@lru_cache(maxsize=4096)
def _parsed(text: str) -> Network:
    return ip_network(text)


def _is_subnet(one: str, other: str) -> bool:
    inner, outer = _parsed(one), _parsed(other)
    if isinstance(inner, IPv4Network):
        return isinstance(outer, IPv4Network) and inner.subnet_of(outer)
    return isinstance(outer, IPv6Network) and inner.subnet_of(outer)


# The lists that bound a key, and whether an entry of one lies within an entry of another.
_PARTS: dict[str, Callable[[str, str], bool]] = {
    "scopes": operator.eq,
    "networks": _is_subnet,
    "models": is_within,
}
