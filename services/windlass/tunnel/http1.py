"""HTTP/1.1 heads, read so strictly that no two readers can disagree; pure.

A proxy and the server behind it must see the same requests in the same bytes. So whatever
RFC 9112 leaves to a reader's goodwill is refused here: two lengths, a length beside chunks,
folded lines, bare CR or LF, an absolute target, white space around a name. A request in
chunks is refused as well: nothing that may pass has a body worth them.
"""

import re
from dataclasses import dataclass

from windlass.tunnel.http1_bodies import Chunked, MalformedHttp, MessageBody, Sized, UntilClose

HEAD_BYTES = 32 * 1024
END_OF_HEAD = b"\r\n\r\n"
METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"})

_TOKEN = rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
_REQUEST_LINE = re.compile(rb"(" + _TOKEN + rb") (/[!-~]*) HTTP/1\.1")
_STATUS_LINE = re.compile(rb"HTTP/1\.[01] ([1-5][0-9]{2})(?: ([ -~\t]*))?")
_HEADER = re.compile(rb"(" + _TOKEN + rb"):[ \t]*([ -~\t]*)")
_LENGTH = re.compile(r"[0-9]{1,18}")
# Of these a second one is a second meaning.
_ONCE = frozenset({
    "host", "content-length", "transfer-encoding", "authorization", "upgrade", "content-type",
    "sec-websocket-key", "sec-websocket-version",
})  # fmt: skip

Headers = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class RequestHead:
    """A request without its body. Names of headers are in lower case, values are ASCII."""

    method: str
    # Path and query as they came, from the first slash.
    target: str
    headers: Headers
    # Bytes of the body behind it.
    length: int

    @property
    def upgrade(self) -> str:
        """The protocol that the client wants to change to, in lower case; empty for none."""
        wanted = "upgrade" in _tokens(self.headers, "connection")
        return first(self.headers, "upgrade").lower() if wanted else ""

    @property
    def closes(self) -> bool:
        """True if the client ends the connection after this one."""
        return "close" in _tokens(self.headers, "connection")


@dataclass(frozen=True, slots=True)
class ResponseHead:
    """An answer without its body."""

    status: int
    reason: str
    headers: Headers
    # What follows, given the method that was asked.
    body: MessageBody


def first(headers: Headers, name: str) -> str:
    """The first value of a header, empty when there is none."""
    return next((value for key, value in headers if key == name), "")


def parse_request(head: bytes) -> RequestHead:
    """A request's head, up to and with the empty line; raises MalformedHttp."""
    line, headers = _lines(head)
    found = _REQUEST_LINE.fullmatch(line)
    if found is None:
        raise MalformedHttp("The request line is not one of HTTP/1.1 with a path.")
    method = found[1].decode()
    if method not in METHODS:
        raise MalformedHttp(f"The method {method[:20]} is not served here.", status=405)
    for name in _ONCE:
        if sum(key == name for key, _ in headers) > 1:
            raise MalformedHttp(f"The header {name} is given more than once.")
    if not first(headers, "host"):
        raise MalformedHttp("There is no Host.")
    if any(key == "expect" for key, _ in headers):
        raise MalformedHttp("Expect is not served here.", status=417)
    length, chunked = _framing(headers)
    if chunked:
        raise MalformedHttp("A request's body needs a Content-Length here.", status=411)
    return RequestHead(method, found[2].decode(), headers, length or 0)


def parse_response(head: bytes, *, method: str) -> ResponseHead:
    """The head of the answer to `method`; raises MalformedHttp."""
    line, headers = _lines(head)
    found = _STATUS_LINE.fullmatch(line)
    if found is None:
        raise MalformedHttp("The status line is not one of HTTP/1.1.")
    status, reason = int(found[1]), (found[2] or b"").decode()
    length, chunked = _framing(headers)
    body: MessageBody
    if method == "HEAD" or status < 200 or status in (204, 304):
        body = Sized(0)
    elif chunked:
        body = Chunked()
    else:
        body = UntilClose() if length is None else Sized(length)
    return ResponseHead(status, reason, headers, body)


def _lines(head: bytes) -> tuple[bytes, Headers]:
    if len(head) > HEAD_BYTES:
        raise MalformedHttp("The head is too long.", status=431)
    if not head.endswith(END_OF_HEAD):
        raise MalformedHttp("The head does not end.")
    first_line, *lines = head[: -len(END_OF_HEAD)].split(b"\r\n")
    headers = []
    for line in lines:
        # A folded line begins with white space, and so has no name.
        found = _HEADER.fullmatch(line)
        if found is None:
            raise MalformedHttp("A header line is not well-formed.")
        headers.append((found[1].decode().lower(), found[2].decode().rstrip(" \t")))
    return first_line, tuple(headers)


def _framing(headers: Headers) -> tuple[int | None, bool]:
    """Length, None where none is given, and whether the body comes in chunks."""
    lengths = [value for key, value in headers if key == "content-length"]
    codings = [value for key, value in headers if key == "transfer-encoding"]
    if lengths and codings:
        raise MalformedHttp("Content-Length and Transfer-Encoding contradict each other.")
    if len(lengths) > 1 or len(codings) > 1:
        raise MalformedHttp("The body's length is given more than once.")
    if codings and codings[0].lower() != "chunked":
        raise MalformedHttp("The only transfer coding served here is chunked.", status=501)
    if lengths and not _LENGTH.fullmatch(lengths[0]):
        raise MalformedHttp("Content-Length is not a number.")
    return (int(lengths[0]) if lengths else None), bool(codings)


def _tokens(headers: Headers, name: str) -> set[str]:
    values = ",".join(value for key, value in headers if key == name)
    return {token.strip().lower() for token in values.split(",")}
