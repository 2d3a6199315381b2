"""Headers that pass the tunnel."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windlass.sessions.access.forwarding import bearer, impersonates, request_head, response_head
from windlass.tunnel.http1 import RequestHead, parse_request, parse_response
from windlass.tunnel.http1_bodies import MalformedHttp


def asked(*lines: str, method: str = "GET") -> RequestHead:
    return parse_request("\r\n".join([f"{method} /x HTTP/1.1", "Host: h", *lines, "", ""]).encode())


def passed(*lines: str, method: str = "GET") -> list[str]:
    return request_head(asked(*lines, method=method), "/api").decode().split("\r\n")


def test_who_is_calling_is_never_said_by_the_client() -> None:
    lines = passed(
        "Authorization: Bearer t",
        "Proxy-Authorization: x",
        "Cookie: a=b",
        "X-Remote-User: admin",
        "X-Remote-Group: system:masters",
        "X-Remote-Extra-Scopes: x",
        "X-Forwarded-For: 1.2.3.4",
        "X-Forwarded-Client-Cert: x",
        "Forwarded: for=x",
        "X-Real-Ip: 1.2.3.4",
        "Impersonate-User: system:admin",
        "Impersonate-Group: system:masters",
        "Impersonate-Extra-Scopes: x",
        "Audit-Id: x",
        "Traceparent: x",
        "Te: trailers",
        "Keep-Alive: 5",
        "Connection: Authorization, close",
        "User-Agent: kubectl/v1.36.3",
        "Accept: application/json",
    )
    assert lines == [
        "GET /api HTTP/1.1",
        "host: kubernetes",
        "user-agent: kubectl/v1.36.3",
        "accept: application/json",
        "",
        "",
    ]


def test_an_upgrade_passes_with_its_protocols() -> None:
    lines = passed(
        "Connection: keep-alive, Upgrade",
        "Upgrade: SPDY/3.1",
        "X-Stream-Protocol-Version: v4.channel.k8s.io",
        "X-Stream-Protocol-Version: v3.channel.k8s.io",
        method="POST",
    )
    assert lines[2:-2] == [
        "x-stream-protocol-version: v4.channel.k8s.io",
        "x-stream-protocol-version: v3.channel.k8s.io",
        "connection: Upgrade",
        "upgrade: SPDY/3.1",
        "content-length: 0",
    ]
    websocket = passed(
        "Connection: Upgrade",
        "Upgrade: websocket",
        "Sec-WebSocket-Protocol: v5.channel.k8s.io, SPDY/3.1+portforward.k8s.io",
        "Sec-WebSocket-Extensions: permessage-deflate",
    )
    assert "upgrade: websocket" in websocket
    assert not any("extensions" in line for line in websocket)


@pytest.mark.parametrize(
    "value",
    [
        "base64url.bearer.authorization.k8s.io.c2VjcmV0",
        "v5.channel.k8s.io, base64url.bearer.authorization.k8s.io.c2VjcmV0",
        "v5.channel.k8s.io,",
        "unknown",
    ],
)
def test_no_credential_hides_among_the_protocols(value: str) -> None:
    with pytest.raises(MalformedHttp):
        passed("Connection: Upgrade", "Upgrade: websocket", f"Sec-WebSocket-Protocol: {value}")


def test_the_token_and_the_attempt_to_be_somebody_else_are_seen() -> None:
    assert bearer(asked("Authorization: bEaReR  abc")) == "abc"
    assert bearer(asked("Authorization: Basic abc")) == ""
    assert bearer(asked()) == ""
    assert impersonates(asked("Impersonate-Extra-Foo: x")) == "impersonate-extra-foo"
    assert impersonates(asked("X-Impersonate: x")) == ""


NAMES = st.text("abcdefghijklmnopqrstuvwxyz-", min_size=1, max_size=20)


@given(st.lists(st.tuples(NAMES, st.sampled_from(["x", "chunked", "close"])), max_size=6))
def test_what_is_sent_on_is_itself_a_strict_request(headers: list[tuple[str, str]]) -> None:
    try:
        head = asked(*(f"{name}: {value}" for name, value in headers))
        sent = parse_request(request_head(head, "/api"))
    except MalformedHttp:
        return
    assert sent.target == "/api"
    assert sent.length == head.length


def test_the_answer_keeps_what_concerns_the_request() -> None:
    raw = (
        b"HTTP/1.1 200 OK\r\nAudit-Id: a\r\nConnection: close\r\nKeep-Alive: x\r\n"
        b"Strict-Transport-Security: x\r\nSet-Cookie: a\r\nTransfer-Encoding: chunked\r\n\r\n"
    )
    head = parse_response(raw, method="GET")
    kept = b"HTTP/1.1 200 OK\r\naudit-id: a\r\ntransfer-encoding: chunked\r\n"
    assert response_head(head, closes=False) == kept + b"\r\n"
    assert response_head(head, closes=True) == kept + b"connection: close\r\n\r\n"
    switched = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: x\r\n\r\n"
    answer = response_head(parse_response(switched, method="GET"), closes=True)
    assert b"connection: Upgrade\r\nupgrade: websocket\r\n" in answer
