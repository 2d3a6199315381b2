import base64
import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windlass.core.keyring.envelope import Envelope
from windlass.core.keyring.wrapping import parse_file, parse_keys

OLD, NEW = os.urandom(32), os.urandom(32)


@given(value=st.binary(min_size=1, max_size=300), context=st.text(max_size=40))
def test_what_is_sealed_opens(value: bytes, context: str) -> None:
    envelope = Envelope([OLD])
    assert envelope.open(envelope.seal(value, context=context), context=context) == value


def test_the_same_value_never_looks_the_same() -> None:
    envelope = Envelope([OLD])
    assert envelope.seal(b"key", context="c") != envelope.seal(b"key", context="c")


def test_another_project_cannot_open_it() -> None:
    envelope = Envelope([OLD])
    sealed = envelope.seal(b"key", context="proj_a/wandb")
    with pytest.raises(ValueError):
        envelope.open(sealed, context="proj_b/wandb")


@given(position=st.integers(min_value=0), flip=st.integers(min_value=1, max_value=255))
def test_a_changed_byte_is_noticed(position: int, flip: int) -> None:
    envelope = Envelope([OLD])
    sealed = bytearray(envelope.seal(b"secret value", context="c"))
    sealed[position % len(sealed)] ^= flip
    with pytest.raises(ValueError):
        envelope.open(bytes(sealed), context="c")


def test_rotation_keeps_values_and_retires_the_old_key() -> None:
    sealed = Envelope([OLD]).seal(b"value", context="c")
    both = Envelope([NEW, OLD])
    assert not both.is_current(sealed)
    rewrapped = both.rewrap(sealed, context="c")
    assert Envelope([NEW]).open(rewrapped, context="c") == b"value"
    with pytest.raises(ValueError):
        Envelope([NEW]).open(sealed, context="c")


def test_master_keys_are_checked() -> None:
    text = ",".join(base64.b64encode(key).decode() for key in (NEW, OLD))
    assert parse_keys(text) == [NEW, OLD]
    with pytest.raises(ValueError):
        parse_keys(base64.b64encode(b"short").decode())


def test_a_key_file_is_raw_or_text() -> None:
    text = base64.b64encode(NEW)
    assert parse_file(NEW) == parse_file(text + b"\n") == [NEW]
    for wrong in (b"", b"short", b"\xff" * 33):
        with pytest.raises(ValueError):
            parse_file(wrong)
