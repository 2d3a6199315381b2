"""Filtering of the headers that pass the tunnel; pure.

What a client sends passes only when it is known: an API server has many headers that say
who is calling, and every one of them is for the agent alone to say.
"""

from windlass.tunnel.http1 import Headers, RequestHead, ResponseHead, first
from windlass.tunnel.http1_bodies import MalformedHttp

_REQUEST_HEADERS = frozenset({
    "accept", "accept-encoding", "content-type", "if-none-match", "if-modified-since",
    "user-agent", "kubectl-command", "kubectl-session",
    "x-stream-protocol-version", "sec-websocket-key", "sec-websocket-version",
    "sec-websocket-protocol",
})  # fmt: skip
# Subprotocols of exec, attach and port-forward. There is one that carries a bearer token,
# which would be another identity than ours.
_STREAM_PROTOCOLS = frozenset({
    *(f"{version}channel.k8s.io" for version in ("", "v1.", "v2.", "v3.", "v4.", "v5.")),
    *(f"{version}base64.channel.k8s.io" for version in ("", "v4.")),
    "portforward.k8s.io", "v4.portforward.k8s.io", "spdy/3.1+portforward.k8s.io",
})  # fmt: skip
# Of the answer, what concerns the connection behind us, or more than this one path.
_NOT_ANSWERED = frozenset({
    "connection", "keep-alive", "proxy-connection", "proxy-authenticate", "te", "trailer",
    "upgrade", "strict-transport-security", "set-cookie", "alt-svc",
})  # fmt: skip


def impersonates(head: RequestHead) -> str:
    """The impersonation header of the request; empty for none."""
    return next((name for name, _ in head.headers if name.startswith("impersonate-")), "")


def bearer(head: RequestHead) -> str:
    """The token of `Authorization: Bearer`, empty when there is none."""
    scheme, _, token = first(head.headers, "authorization").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""


def request_head(head: RequestHead, target: str) -> bytes:
    """The head to send into the tunnel; raises MalformedHttp for an unknown stream protocol."""
    lines = [f"{head.method} {target} HTTP/1.1", "host: kubernetes"]
    for name, value in head.headers:
        if name == "sec-websocket-protocol":
            _check_protocols(value)
        if name in _REQUEST_HEADERS:
            lines.append(f"{name}: {value}")
    if head.upgrade:
        lines += ["connection: Upgrade", f"upgrade: {first(head.headers, 'upgrade')}"]
    if head.length or head.method == "POST":
        lines.append(f"content-length: {head.length}")
    return "\r\n".join([*lines, "", ""]).encode()


def _check_protocols(value: str) -> None:
    for protocol in value.split(","):
        if protocol.strip().lower() not in _STREAM_PROTOCOLS:
            raise MalformedHttp("Sec-WebSocket-Protocol names a protocol that is not supported.")


def response_head(head: ResponseHead, *, closes: bool) -> bytes:
    """The head to answer with; `closes` is set if the connection ends after it."""
    kept: Headers = tuple(pair for pair in head.headers if pair[0] not in _NOT_ANSWERED)
    lines = [f"HTTP/1.1 {head.status} {head.reason}", *(f"{k}: {v}" for k, v in kept)]
    if head.status == 101:
        lines += ["connection: Upgrade", f"upgrade: {first(head.headers, 'upgrade')}"]
    elif closes:
        lines.append("connection: close")
    return "\r\n".join([*lines, "", ""]).encode()
