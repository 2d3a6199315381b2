"""Models that a key is narrowed to: judged by their names, as patterns say."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from windlass.core.rpc.auth import Principal
from windlass.core.rpc.model_scope import ModelScope, is_within
from windlass.users.domain import ApiKey
from windlass.users.keys.restrictions import models_within

KEY = ApiKey("key_1", "", "org", "proj", "ann", "project_member", "", 0, 0, 0, 0, "", "")
LETTERS = st.text("ab:", min_size=1, max_size=4)
patterns = st.builds(str.__add__, LETTERS, st.sampled_from(["", "*"]))
denials = patterns.map("!".__add__)
scopes = st.sets(patterns | denials, min_size=1, max_size=4).map(ModelScope.of)


@given(scopes, LETTERS)
def test_a_name_is_admitted_by_the_pattern_that_it_is_within(
    scope: ModelScope | None, name: str
) -> None:
    assert scope is not None
    admitted = not scope.admitted or any(is_within(name, one) for one in scope.admitted)
    denied = any(is_within(name, one) for one in scope.denied)
    assert scope.admits(name) == (admitted and not denied)


@given(scopes, scopes, LETTERS)
def test_what_is_within_two_is_what_both_admit(
    one: ModelScope | None, other: ModelScope | None, name: str
) -> None:
    assert one is not None
    assert other is not None
    both = one.within(other)
    assert both.admits(name) == (one.admits(name) and other.admits(name))
    assert both == other.within(one)
    assert one.covers(both)


def test_an_empty_list_admits_nothing() -> None:
    key = replace(KEY, models=("toy",))
    assert models_within(key, None, None) == ("toy",)
    assert models_within(KEY, "deny_list", []) == ()
    for one in (KEY, key):
        scope = ModelScope.of(models_within(one, "allow_list", []))
        assert scope is not None
        assert not scope.admits("toy")
    assert models_within(key, "allow_list", ["other"]) == ("!*",)
    assert models_within(key, "deny_list", ["toy*"]) == ("!toy*", "toy")


@given(scopes, scopes, LETTERS)
def test_what_covers_another_admits_what_that_admits(
    outer: ModelScope | None, inner: ModelScope | None, name: str
) -> None:
    assert outer is not None
    assert inner is not None
    assert not (outer.covers(inner) and inner.admits(name)) or outer.admits(name)
    assert outer.covers(outer)
    assert not outer.covers(None)


def test_a_principal_keeps_its_models_on_its_way() -> None:
    caller = Principal("org", models=ModelScope.of(["toy", "ft:toy:*"]))
    again = Principal.from_proto(caller.to_proto())
    assert again == caller
    assert again.may_use("ft:toy:1")
    assert not again.may_use("toys")
    assert Principal.from_proto(Principal("org").to_proto()).models is None


def test_a_caller_who_may_use_fewer_models_covers_no_other() -> None:
    free, narrow = Principal("org"), Principal("org", models=ModelScope.of(["toy"]))
    assert free.covers(narrow)
    assert not narrow.covers(free)
    assert narrow.covers(narrow)
