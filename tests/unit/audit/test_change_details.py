"""Details of a change: what differs, never a secret, bounded, and on one line of ASCII."""

import json
from dataclasses import dataclass, replace
from typing import Any

import pytest

from windlass.audit.details import DETAIL_BYTES, details
from windlass.audit_chain.links import canonical


@dataclass(frozen=True)
class Thing:
    id: str = "thing_1"
    title: str = "one"
    kind: str = "person"
    scopes: tuple[str, ...] = ()
    shared: bool = False
    expires_at: int = 0


def told(before: Any, after: Any) -> tuple[Any, Any]:
    first, second = details(before, after)
    return json.loads(first or "null"), json.loads(second or "null")


def test_of_two_the_fields_that_differ_are_told_with_ids() -> None:
    thing = Thing(scopes=("a", "b"), expires_at=5)
    changed = replace(thing, title="two", scopes=(), expires_at=0)
    was, now = told(thing, changed)
    assert was == {"title": "one", "scopes": ["a", "b"], "expires_at": 5}
    assert now == {
        "title": "two", "scopes": [], "expires_at": 0, "id": "thing_1", "kind": "person",
    }  # fmt: skip


def test_what_was_not_there_or_is_no_more_is_told_whole() -> None:
    whole = {"id": "thing_1", "title": "one", "kind": "person", "shared": False}
    assert told(None, Thing()) == (None, whole)
    assert told(Thing(), None) == (whole, None)
    assert details(Thing(), Thing()) == ("", "")
    assert details(None, None) == ("", "")


SECRETS = (
    "secret", "client_secret", "value_digest", "API_TOKEN", "password", "sealed_envelope",
    "credentials", "private_key", "Authorization", "cookie",
)  # fmt: skip


@pytest.mark.parametrize("name", SECRETS)
def test_no_field_with_the_name_of_a_secret_is_told(name: str) -> None:
    before, after = {name: "wl-1", "tags": {name: "wl-1"}}, {name: "wl-2", "tags": {name: "wl-2"}}
    assert "wl-" not in "".join([*details(None, after), *details(before, after)])


def test_no_address_of_a_person_is_told() -> None:
    person = {"id": "ann", "email": "a@b.example", "user_name": "ann", "of": {"emails": ["a@b"]}}
    assert told(None, person) == (None, {"id": "ann"})


def test_bytes_and_objects_are_never_told() -> None:
    record = {"title": "one", "digest2": b"x", "blob": b"wl-1", "object": object(), "ratio": 0.5}
    assert told(None, record) == (None, {"title": "one"})
    assert told(None, {"list": [b"wl-1", "a"], "deep": {"a": {"b": {"c": {"d": 1}}}}})[1] == {
        "list": ["a"], "deep": {"a": {"b": {}}},
    }  # fmt: skip


def test_a_secret_alone_that_changes_is_no_detail() -> None:
    assert details({"id": "a", "secret": "1"}, {"id": "a", "secret": "2"}) == ("", "")


@pytest.mark.parametrize(
    "hostile",
    ["a\nOct 11 sshd: root", "\r\x1b[2J", "\u202egnp.exe", "\u2028", "\0", '","outcome":"OK', "é"],
)
def test_nothing_a_caller_writes_leaves_its_place(hostile: str) -> None:
    _, text = details(None, {"title": hostile, "tags": {hostile: hostile}})
    assert text.isascii()
    assert text.isprintable()
    assert json.loads(text) == {"title": hostile, "tags": {hostile: hostile}}
    assert b"\n" not in canonical({"after": text})


def test_details_are_bounded() -> None:
    long = {"title": "x" * 10**6, "scopes": [f"{n}" for n in range(10**4)], "id": "thing_1"}
    _, text = details(None, long)
    assert len(text) <= DETAIL_BYTES
    shown = json.loads(text)
    assert shown["title"].endswith("… 999744 more")
    assert shown["scopes"][-1] == "… 9900 more"
    wide = {"id": "thing_1", **{f"field_{n}": ["\u202e" * 300] * 100 for n in range(20)}}
    _, text = details(None, wide)
    assert len(text) <= DETAIL_BYTES + 20 * 16
    assert json.loads(text)["id"] == "thing_1"
    assert len(json.loads(text)["omitted"]) == 20
