"""Credentials that are told from made-up ones without a look-up."""

import string

from hypothesis import given
from hypothesis import strategies as st

from windlass.core.rpc.auth import checksum, may_be_secret, new_secret

LETTERS = string.ascii_letters + string.digits


@given(st.from_regex(r"[a-z][a-z0-9]{0,15}[-_]", fullmatch=True))
def test_what_is_made_may_be_one(prefix: str) -> None:
    made = new_secret(prefix)
    assert may_be_secret(made)
    assert len(made) == len(prefix) + 49
    assert may_be_secret(made[:-6]), "as earlier releases made them"


@given(st.integers(0, 51), st.sampled_from(LETTERS))
def test_a_changed_letter_tells(place: int, letter: str) -> None:
    made = new_secret("wl-")
    changed = made[:place] + letter + made[place + 1 :]
    assert may_be_secret(changed) == (changed == made)


@given(st.text())
def test_anything_else_is_none(text: str) -> None:
    assert not may_be_secret(text)


def test_scanners_can_compute_it() -> None:
    assert checksum("wl-" + "a" * 43) == "dSjkFW"
