"""Heads and bodies as the listener writes them, read by a parser; the transport is a list."""

import asyncio
from typing import Any

import httptools
import pytest
from hypothesis import given
from hypothesis import strategies as st

from windlass.gateway.listener.joined_answer import JOINED_BYTES, JoinedAnswer


class Wire:
    """A transport that keeps what is written."""

    def __init__(self) -> None:
        self.writes: list[bytes] = []
        self.is_closed = False

    def write(self, data: bytes) -> None:
        self.writes.append(bytes(data))

    def close(self) -> None:
        self.is_closed = True


class Flow:
    write_paused = False


class Read:
    """An answer as a parser reads it."""

    def __init__(self, data: bytes):
        self.headers: list[tuple[bytes, bytes]] = []
        self.body = b""
        self.is_whole = False
        parser = httptools.HttpResponseParser(self)
        parser.feed_data(data)
        self.status = parser.get_status_code()

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers.append((name, value))

    def on_body(self, body: bytes) -> None:
        self.body += body

    def on_message_complete(self) -> None:
        self.is_whole = True


def answer(
    wire: Wire, *, method: str = "GET", keep_alive: bool = True
) -> tuple[JoinedAnswer, list[int]]:
    ended: list[int] = []
    parts: dict[str, Any] = {
        "scope": {"method": method},
        "transport": wire,
        "flow": Flow(),
        "logger": None,
        "access_logger": None,
        "access_log": False,
        "default_headers": [(b"date", b"today")],
        "message_event": asyncio.Event(),
        "expect_100_continue": False,
        "keep_alive": keep_alive,
        "on_response": lambda: ended.append(1),
    }
    made = JoinedAnswer(**parts)
    return made, ended


def start(*headers: tuple[bytes, bytes], status: int = 200) -> dict[str, Any]:
    return {"type": "http.response.start", "status": status, "headers": headers}


def body(data: bytes, *, more: bool = False) -> dict[str, Any]:
    return {"type": "http.response.body", "body": data, "more_body": more}


def length(size: int) -> tuple[bytes, bytes]:
    return (b"content-length", b"%d" % size)


async def test_a_whole_answer_leaves_at_once() -> None:
    wire = Wire()
    made, ended = answer(wire)
    await made.send(start(length(4)))
    assert not wire.writes
    await made.send(body(b"done"))
    assert len(wire.writes) == 1
    read = Read(wire.writes[0])
    assert (read.status, read.body, read.is_whole) == (200, b"done", True)
    assert (b"date", b"today") in read.headers
    assert ended
    assert made.response_complete
    assert not wire.is_closed


async def test_a_long_body_is_not_copied() -> None:
    wire, data = Wire(), b"x" * (JOINED_BYTES + 1)
    made, _ = answer(wire)
    await made.send(start(length(len(data))))
    await made.send(body(data))
    assert wire.writes[1:] == [data]


async def test_the_head_of_a_stream_does_not_wait_for_its_first_part() -> None:
    wire = Wire()
    made, _ = answer(wire)
    await made.send(start())
    assert len(wire.writes) == 1
    await made.send(body(b"a", more=True))
    await made.send(body(b""))
    read = Read(b"".join(wire.writes))
    assert (read.body, read.is_whole) == (b"a", True)


@pytest.mark.parametrize(("method", "status"), [("HEAD", 200), ("GET", 204), ("GET", 304)])
async def test_an_answer_without_a_body(method: str, status: int) -> None:
    wire = Wire()
    made, ended = answer(wire, method=method)
    await made.send(start(*([length(4)] if method == "HEAD" else []), status=status))
    await made.send(body(b""))
    assert b"".join(wire.writes).endswith(b"\r\n\r\n")
    assert b"transfer-encoding" not in wire.writes[0]
    assert ended


@pytest.mark.parametrize("headers", [[], [(b"connection", b"close")]])
async def test_the_last_answer_of_a_connection_says_so_once(headers: Any) -> None:
    wire = Wire()
    made, _ = answer(wire, keep_alive=bool(headers))
    await made.send(start(length(0), *headers))
    await made.send(body(b""))
    assert wire.writes[0].count(b"connection: close\r\n") == 1
    assert wire.is_closed


@pytest.mark.parametrize("parts", [[b"abcde"], [b"abc"], [b"ab", b"cde"], [b"ab", b"c"]])
async def test_a_body_of_another_length_than_was_told(parts: list[bytes]) -> None:
    made, ended = answer(Wire())
    await made.send(start(length(4)))
    *first, last = parts

    async def send() -> None:
        for part in first:
            await made.send(body(part, more=True))
        await made.send(body(last))

    with pytest.raises(RuntimeError, match="Content-Length"):
        await send()
    assert not ended


@pytest.mark.parametrize(
    "header",
    [
        (b"x", b"a\r\nset-cookie: b"),
        (b"x", b"a\nb"),
        (b"x", b"a\rb"),
        (b"x", b"a\0b"),
        (b"x\r\ny", b"a"),
    ],
)
async def test_no_header_begins_another_line(header: tuple[bytes, bytes]) -> None:
    wire = Wire()
    made, _ = answer(wire)
    with pytest.raises(RuntimeError, match="header"):
        await made.send(start(length(0), header))
    assert not wire.writes


@given(
    st.lists(
        st.tuples(
            st.sampled_from([b"x-a", b"x-request-id", b"retry-after"]),
            st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1, max_size=9),
        ),
        max_size=4,
    ),
    st.lists(st.binary(max_size=9), min_size=1, max_size=4),
    st.booleans(),
    st.sampled_from([200, 400, 503]),
)
async def test_it_arrives_as_it_was_sent(
    headers: list[tuple[bytes, str]], parts: list[bytes], has_length: bool, status: int
) -> None:
    wire, whole = Wire(), b"".join(parts)
    made, ended = answer(wire)
    told = [(name, value.encode()) for name, value in headers]
    await made.send(start(*told, *([length(len(whole))] if has_length else []), status=status))
    for number, part in enumerate(parts, 1):
        await made.send(body(part, more=number < len(parts)))
    read = Read(b"".join(wire.writes))
    assert (read.status, read.body, read.is_whole) == (status, whole, True)
    assert [one for one in read.headers if one in told] == told
    assert ended
