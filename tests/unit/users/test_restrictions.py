"""Restrictions of keys: nothing made with a key, or cut to it, is wider than the key."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windlass.bounds import KEY_MODELS_LENGTH, MAX_KEY_MODELS
from windlass.core.errors import InvalidArgument
from windlass.policy import ORGANIZATION_OWNER, PROJECT_MEMBER, permissions_of
from windlass.users.domain import ApiKey
from windlass.users.keys.restrictions import (
    cut,
    inherit,
    require_change,
    require_within,
    valid_models,
    valid_networks,
    valid_scopes,
)

ROOT = ApiKey("key_root", "", "org", "", "ann", ORGANIZATION_OWNER, "", 0, 0, 0, 0, "", "")
NAMES = sorted(permissions_of((PROJECT_MEMBER,)))
NETWORKS = ("10.0.0.0/8", "10.1.0.0/16", "10.1.2.3/32", "192.0.2.0/24", "2001:db8::/32", "::/0")
MODELS = ("toy", "ft:toy:*", "ft:*", "ft:toy:a:1", "f*", "ft:toy")
keys = st.builds(
    lambda scopes, networks, models, end: replace(
        ROOT,
        scopes=tuple(sorted(scopes)),
        networks=tuple(sorted(networks)),
        models=tuple(sorted(models)),
        expires_at=end,
    ),
    st.sets(st.sampled_from(NAMES), max_size=4),
    st.sets(st.sampled_from(NETWORKS), max_size=3),
    st.sets(st.sampled_from(MODELS), max_size=3),
    st.sampled_from([0, 100, 200]),
)


def is_within(key: ApiKey, bound: ApiKey) -> bool:
    try:
        require_within(key, bound)
    except InvalidArgument:
        return False
    return True


@given(keys, keys)
def test_what_is_cut_lies_within_both(key: ApiKey, bound: ApiKey) -> None:
    found = cut(key, bound)
    if found is None:
        assert not is_within(key, bound)
        return
    assert is_within(found, bound)
    assert is_within(found, key)
    assert cut(found, bound) == found
    assert not is_within(key, bound) or found == key


@given(keys, keys)
def test_what_is_made_with_a_key_is_no_wider(key: ApiKey, parent: ApiKey) -> None:
    try:
        made = inherit(key, parent)
    except InvalidArgument:
        return
    assert is_within(made, parent)
    assert not key.scopes or made.scopes == key.scopes
    assert not key.networks or made.networks == key.networks
    assert not key.models or made.models == key.models


@given(keys, keys, keys)
def test_a_change_goes_beyond_a_bound_only_where_the_key_was(
    before: ApiKey, after: ApiKey, bound: ApiKey
) -> None:
    try:
        require_change(before, after, bound)
    except InvalidArgument:
        assert not is_within(after, before)
        return
    assert is_within(after, bound) or not is_within(before, bound) or is_within(after, before)


def test_a_role_that_has_none_of_the_scopes_is_refused() -> None:
    parent = replace(ROOT, scopes=("audit.read",))
    with pytest.raises(InvalidArgument, match="none of the scopes"):
        inherit(replace(ROOT, role=PROJECT_MEMBER), parent)


@pytest.mark.parametrize(
    ("names", "said"),
    [
        (["jobs.fly"], "not a permission"),
        (["self.read", "audit.read"], "does not grant audit.read"),
        ([""], "not a permission"),
    ],
)
def test_scopes_are_permissions_of_the_role(names: list[str], said: str) -> None:
    with pytest.raises(InvalidArgument, match=said) as refused:
        valid_scopes(names, PROJECT_MEMBER)
    assert refused.value.param == "scopes"


@pytest.mark.parametrize(
    "text",
    ["10.0.0.1/8", "10.0.0.0/33", "", "example.com", "::ffff:10.0.0.1", "1.2.3.4/0.0.0.0/1", "\0"],
)
def test_what_is_no_network_is_refused(text: str) -> None:
    with pytest.raises(InvalidArgument) as refused:
        valid_networks([text])
    assert refused.value.param == "networks"


def test_networks_have_one_form() -> None:
    written = ["10.0.0.7", "2001:DB8:0::/32", "10.0.0.7/32", " 192.0.2.0/255.255.255.0"]
    assert valid_networks(written) == ("10.0.0.7/32", "192.0.2.0/24", "2001:db8::/32")


@pytest.mark.parametrize(
    "patterns",
    [
        ["*"],
        [""],
        ["**"],
        ["to*y"],
        ["*toy"],
        ["toy?"],
        ["t\u043ey"],
        ["\uff54oy"],
        ["toy "],
        ["toy\n"],
        [".*"],
        ["a" * 257],
        [f"m{n}" for n in range(MAX_KEY_MODELS + 1)],
        [f"{n:03}" + "a" * 250 for n in range(KEY_MODELS_LENGTH // 253 + 1)],
    ],
)
def test_what_is_no_model_s_name_is_refused(patterns: list[str]) -> None:
    with pytest.raises(InvalidArgument) as refused:
        valid_models(patterns)
    assert refused.value.param == "models"


def test_models_are_sorted_and_named_once() -> None:
    assert valid_models(["toy", "ft:toy:*", "toy", "a/b"]) == ("a/b", "ft:toy:*", "toy")
