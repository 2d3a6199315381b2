"""Heads and bodies of HTTP/1.1: what is read, and what has two readings and is refused."""

import h11
import pytest
from hypothesis import given
from hypothesis import strategies as st

from windlass.tunnel.http1 import HEAD_BYTES, first, parse_request, parse_response
from windlass.tunnel.http1_bodies import Chunked, MalformedHttp, Sized, UntilClose


def head(*lines: str, start: str = "GET /api HTTP/1.1", host: bool = True) -> bytes:
    named = ["Host: h"] if host else []
    return "\r\n".join([start, *named, *lines, "", ""]).encode("latin-1")


def test_a_plain_request() -> None:
    found = parse_request(head("Accept:  a, b \t", "X-Empty:", start="POST /p?q=%20 HTTP/1.1"))
    assert (found.method, found.target, found.length) == ("POST", "/p?q=%20", 0)
    assert found.headers == (("host", "h"), ("accept", "a, b"), ("x-empty", ""))
    assert (found.upgrade, found.closes) == ("", False)


def test_connection_options_close_and_upgrade_a_connection() -> None:
    assert parse_request(head("Connection: keep-alive, CLOSE")).closes
    upgrade = parse_request(head("Connection: Upgrade", "Upgrade: SPDY/3.1"))
    assert upgrade.upgrade == "spdy/3.1"
    # An upgrade that the connection does not announce is none.
    assert parse_request(head("Upgrade: websocket")).upgrade == ""


@pytest.mark.parametrize(
    ("raw", "status"),
    [
        (head("Content-Length: 4", "Transfer-Encoding: chunked"), 400),
        (head("Transfer-Encoding: chunked", "Content-Length: 4"), 400),
        (head("Content-Length: 4", "Content-Length: 4"), 400),
        (head("Content-Length: 4", "content-length: 5"), 400),
        (head("Content-Length: 4, 4"), 400),
        (head("Content-Length: +4"), 400),
        (head("Content-Length: -1"), 400),
        (head("Content-Length: 0x4"), 400),
        (head("Content-Length: 4 4"), 400),
        (head("Content-Length:"), 400),
        (head("Transfer-Encoding: chunked"), 411),
        (head("Transfer-Encoding: Chunked"), 411),
        (head("Transfer-Encoding: gzip, chunked"), 501),
        (head("Transfer-Encoding: identity"), 501),
        (head("Transfer-Encoding: chunked", "Transfer-Encoding: identity"), 400),
        (head("Transfer-Encoding : chunked"), 400),
        (head("Transfer-Encoding\t: chunked"), 400),
        (head(" Transfer-Encoding: chunked"), 400),
        (head("Accept: a", " folded"), 400),
        (head("Accept: a", "\tfolded"), 400),
        (head("Accept: a\nX: b"), 400),
        (head("Accept: a\rX: b"), 400),
        (head("Accept: a\x00"), 400),
        (head("Accept: \xe9"), 400),
        (head("NoColon"), 400),
        (head(": nameless"), 400),
        (head("Na(me: x"), 400),
        (head("Expect: 100-continue"), 417),
        (head("Host: again"), 400),
        (head(host=False), 400),
        (head("Host:", host=False), 400),
        (head("Authorization: a", "Authorization: b"), 400),
        (head("Upgrade: websocket", "Upgrade: h2c"), 400),
        (head(start="GET http://evil/api HTTP/1.1"), 400),
        (head(start="GET * HTTP/1.1"), 400),
        (head(start="CONNECT host:443 HTTP/1.1"), 400),
        (head(start="GET  /api HTTP/1.1"), 400),
        (head(start="GET /api  HTTP/1.1"), 400),
        (head(start=" GET /api HTTP/1.1"), 400),
        (head(start="GET /a b HTTP/1.1"), 400),
        (head(start="GET /\xe9 HTTP/1.1"), 400),
        (head(start="GET /api HTTP/1.0"), 400),
        (head(start="GET /api HTTP/2.0"), 400),
        (head(start="GET /api"), 400),
        (head(start="get /api HTTP/1.1"), 405),
        (head(start="TRACE /api HTTP/1.1"), 405),
        (head(start="PRI /api HTTP/1.1"), 405),
        (b"\r\n" + head(), 400),
        (b"GET /api HTTP/1.1\nHost: h\r\n\r\n", 400),
        (b"GET /api HTTP/1.1\r\nHost: h\n\r\n\r\n", 400),
        (head("X: " + "a" * HEAD_BYTES), 431),
    ],
)
def test_what_is_refused(raw: bytes, status: int) -> None:
    with pytest.raises(MalformedHttp) as caught:
        parse_request(raw)
    assert caught.value.status == status


def test_the_body_of_an_answer_ends_by_its_status_method_and_headers() -> None:
    found = parse_response(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n", method="GET")
    assert (found.status, found.reason, first(found.headers, "content-length")) == (200, "OK", "3")
    assert isinstance(found.body, Sized)
    assert not found.body.done
    for line, method in [("204 No Content", "GET"), ("304 ", "GET"), ("200 OK", "HEAD")]:
        raw = f"HTTP/1.1 {line}\r\nTransfer-Encoding: chunked\r\n\r\n".encode()
        assert parse_response(raw, method=method).body.done
    assert isinstance(parse_response(b"HTTP/1.1 200\r\n\r\n", method="GET").body, UntilClose)
    for lines in ("Content-Length: 1\r\nTransfer-Encoding: chunked", "Content-Length: x"):
        with pytest.raises(MalformedHttp):
            parse_response(f"HTTP/1.1 200 OK\r\n{lines}\r\n\r\n".encode(), method="GET")


TOKENS = st.text("abcXYZ0-_!", min_size=1, max_size=8)
VALUES = st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=12)


@given(
    st.sampled_from(["GET", "POST", "DELETE"]),
    st.text("abc/?=&%.", max_size=12),
    st.lists(st.tuples(TOKENS, VALUES), max_size=5),
    st.integers(0, 99),
)
def test_what_is_well_formed_reads_as_another_strict_parser_reads_it(
    method: str, rest: str, headers: list[tuple[str, str]], length: int
) -> None:
    lines = [f"{name}: {value}" for name, value in headers]
    raw = head(*lines, f"Content-Length: {length}", start=f"{method} /{rest} HTTP/1.1")
    found = parse_request(raw)
    other = h11.Connection(h11.SERVER)
    other.receive_data(raw)
    event = other.next_event()
    assert isinstance(event, h11.Request)
    assert (event.method.decode(), event.target.decode()) == (found.method, found.target)
    pairs = [(name.decode(), value.decode()) for name, value in event.headers]
    assert pairs == list(found.headers)
    assert found.length == length


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(junk: bytes) -> None:
    for raw in (junk, junk + b"\r\n\r\n", b"GET / HTTP/1.1\r\nHost: h\r\n" + junk + b"\r\n\r\n"):
        try:
            found = parse_request(raw)
        except MalformedHttp:
            continue
        assert first(found.headers, "host")
        assert all("\r" not in value and "\n" not in value for _, value in found.headers)


def chunked(pieces: list[bytes]) -> bytes:
    return b"".join(b"%x\r\n%b\r\n" % (len(one), one) for one in [*filter(None, pieces), b""])


@given(
    st.lists(st.binary(max_size=40), max_size=6),
    st.lists(st.integers(1, 17)),
    st.binary(max_size=9),
)
def test_a_chunked_body_ends_where_it_ends(
    pieces: list[bytes], steps: list[int], behind: bytes
) -> None:
    whole = chunked(pieces)
    data, body, position, taken = whole + behind, Chunked(), 0, 0
    sizes = iter([*steps, *[len(data)] * 2])
    while not body.done and position < len(data):
        piece = data[position : position + next(sizes)]
        count = body.take(piece)
        assert count == len(piece) or body.done
        taken, position = taken + count, position + len(piece)
    assert body.done
    assert taken == len(whole)


@pytest.mark.parametrize(
    "raw",
    [
        b"3;name=value\r\nabc\r\n0\r\n\r\n",
        b"0\r\nX-Trailer: 1\r\n\r\n",
        b"3\nabc\n0\n\n",
        b"3\r\nabcd\r\n0\r\n\r\n",
        b"3 \r\nabc\r\n",
        b" 3\r\nabc\r\n",
        b"0x3\r\nabc\r\n",
        b"+3\r\nabc\r\n",
        b"\r\nabc\r\n",
        b"-1\r\n",
        b"11111111111111111\r\n",
        b"0\r\n\n",
    ],
)
def test_chunks_that_are_refused(raw: bytes) -> None:
    def take(size: int) -> None:
        body = Chunked()
        for start in range(0, len(raw), size):
            body.take(raw[start : start + size])

    for size in (1, len(raw)):
        with pytest.raises(MalformedHttp):
            take(size)


@given(
    st.lists(st.binary(max_size=20), max_size=5), st.lists(st.integers(0, 200), max_size=6),
    st.binary(max_size=5), st.booleans(),
)  # fmt: skip
def test_what_passes_is_what_would_be_taken_and_is_not_the_end(
    chunks: list[bytes], cuts: list[int], behind: bytes, sized: bool
) -> None:
    content = b"".join(chunks)
    whole = content if sized else b"".join(
        b"%x\r\n%b\r\n" % (len(chunk), chunk) for chunk in chunks if chunk
    ) + b"0\r\n\r\n"  # fmt: skip
    data = whole + behind
    bodies = [Sized(len(content)) if sized else Chunked() for _ in range(2)]
    places = sorted({cut % (len(data) + 1) for cut in cuts})
    for start, end in zip([0, *places], [*places, len(data)], strict=True):
        piece = data[start:end]
        if not piece or bodies[0].done:
            continue
        if bodies[0].passes(piece):
            assert bodies[1].take(piece) == len(piece)
            assert not bodies[1].done
        else:
            taken = bodies[0].take(piece)
            assert taken == bodies[1].take(piece)
            assert bodies[0].done
    assert bodies[0].done == bodies[1].done


def test_what_is_malformed_does_not_pass() -> None:
    body = Chunked()
    assert body.passes(b"3\r\nab")
    assert not body.passes(b"cd")
    with pytest.raises(MalformedHttp):
        body.take(b"cd")


def test_a_body_that_is_cut_off_is_no_whole_one() -> None:
    cases: list[tuple[Sized | Chunked, bytes]] = [
        (Sized(4), b"abc"), (Chunked(), b"3\r\nab"), (Chunked(), b"0\r\n"),
    ]  # fmt: skip
    for body, data in cases:
        body.take(data)
        assert not body.done
        with pytest.raises(MalformedHttp):
            body.end()
    until = UntilClose()
    assert until.take(b"abc") == 3
    assert not until.done
    until.end()
    assert until.done
