"""WebSocket frames of a client."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windlass.client.resources.pod_exec import CommandFailed, exit_code
from windlass.client.transport.websocket import (
    BINARY,
    MESSAGE_BYTES,
    PING,
    Frames,
    ProtocolError,
    accept_of,
    frame,
)


def plain(payload: bytes, opcode: int = BINARY, *, final: bool = True) -> bytes:
    size = len(payload)
    if size < 126:
        length = bytes([size])
    elif size < 65536:
        length = b"\x7e" + size.to_bytes(2, "big")
    else:
        length = b"\x7f" + size.to_bytes(8, "big")
    return bytes([opcode | 0x80 * final]) + length + payload


def test_the_handshake_of_rfc_6455() -> None:
    assert accept_of("dGhlIHNhbXBsZSBub25jZQ==") == "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="


@given(st.binary(max_size=300) | st.integers(65_530, 65_540).map(bytes))
def test_what_a_client_sends_is_masked(payload: bytes) -> None:
    raw = frame(BINARY, payload)
    size = raw[1] & 0x7F
    start = {126: 4, 127: 10}.get(size, 2)
    length = int.from_bytes(raw[2:start], "big") if start > 2 else size
    mask, masked = raw[start : start + 4], raw[start + 4 :]
    assert (raw[0], raw[1] & 0x80, length) == (0x82, 0x80, len(payload))
    assert bytes(byte ^ mask[i % 4] for i, byte in enumerate(masked)) == payload


@given(st.lists(st.binary(max_size=200), max_size=6), st.lists(st.integers(1, 40), min_size=1))
def test_messages_come_whole_however_they_are_cut(messages: list[bytes], steps: list[int]) -> None:
    data = b"".join(map(plain, messages))
    frames, found, position = Frames(), list[tuple[int, bytes]](), 0
    while position < len(data):
        step = steps[position % len(steps)]
        found += frames.feed(data[position : position + step])
        position += step
    assert found == [(BINARY, one) for one in messages]


def test_a_ping_may_come_between_the_parts_of_a_message() -> None:
    frames = Frames()
    assert frames.feed(plain(b"one ", final=False)) == []
    assert frames.feed(plain(b"p", PING)) == [(PING, b"p")]
    assert frames.feed(plain(b"two", 0)) == [(BINARY, b"one two")]


@pytest.mark.parametrize(
    "raw",
    [
        b"\xc2\x00",
        b"\x82\x81....x",
        plain(b"x", 0),
        plain(b"x", final=False) + plain(b"y"),
        b"\x82\x7f" + (MESSAGE_BYTES + 1).to_bytes(8, "big"),
    ],
)
def test_what_no_server_sends(raw: bytes) -> None:
    with pytest.raises(ProtocolError):
        Frames().feed(raw)


def test_the_status_of_a_command_has_its_exit_code_or_a_reason() -> None:
    assert exit_code(b'{"status": "Success"}') == 0
    ended = b'{"status":"Failure","reason":"NonZeroExitCode","details":{"causes":[%b]}}'
    assert exit_code(ended % b'{"reason":"ExitCode","message":"3"}') == 3
    for status, why in [
        (b'{"status":"Failure","message":"no sh in it"}', "no sh in it"),
        (ended % b"", "did not say"),
        (b"[]", "did not say"),
        (b"nonsense", "did not say"),
    ]:
        with pytest.raises(CommandFailed, match=why):
            exit_code(status)
