"""uvicorn's answer to one request, at less of the kernel's and the processor's time."""

from collections.abc import Iterable
from typing import Any

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, RequestResponseCycle

START, BODY = "http.response.start", "http.response.body"
# Ours, sent before the last part of an answer: what follows on the connection waits for so long.
REST = "windlass.rest"
_NO_BODY = (204, 304)
# Copying more costs more than a second write.
JOINED_BYTES = 64 * 1024


class JoinedAnswer(RequestResponseCycle):
    """An answer whose head leaves with the beginning of its body, where that has a length.

    ASGI has a server wait for the first part of the body before it sends the head. The head of a
    body without a length leaves at once, since its first part may be long in coming.
    """

    # What waits for the first part of the body.
    head = b""
    # For how long the connection is read no further after the answer.
    rest_seconds = 0.0

    async def send(self, message: Any) -> None:
        """See RequestResponseCycle; raises RuntimeError for a head that is not HTTP."""
        if self.flow.write_paused and not self.disconnected:
            await self.flow.drain()
        if self.disconnected:
            return
        if message["type"] == REST:
            self.rest_seconds = message["seconds"]
        elif message["type"] == START and not self.response_started:
            self._start(message["status"], message.get("headers", ()))
        elif self.head and message["type"] == BODY:
            self._begin(message.get("body", b""), more=message.get("more_body", False))
        else:
            await super().send(message)

    def _start(self, status: int, headers: Iterable[tuple[bytes, bytes]]) -> None:
        self.response_started, self.waiting_for_100_continue = True, False
        lines, closes = [STATUS_LINE[status]], False
        for name, value in (*self.default_headers, *headers):
            if name == b"content-length":
                self.expected_content_length, self.chunked_encoding = int(value), False
            elif name == b"connection" and b"close" in value.lower():
                self.keep_alive, closes = False, True
            lines.append(b"%b: %b\r\n" % (name, value))
        if not self.keep_alive and not closes:
            lines.append(b"connection: close\r\n")
        is_whole = self.chunked_encoding is False
        if not is_whole and self.scope["method"] != "HEAD" and status not in _NO_BODY:
            self.chunked_encoding = True
            lines.append(b"transfer-encoding: chunked\r\n")
        lines.append(b"\r\n")
        head = b"".join(lines)
        # Lines end here and nowhere else.
        if not head.count(b"\n") == head.count(b"\r") == len(lines) or b"\0" in head:
            raise RuntimeError("A header has a character that HTTP does not allow.")
        if is_whole and self.scope["method"] != "HEAD":
            self.head = head
        else:
            self.transport.write(head)

    def _begin(self, body: bytes, *, more: bool) -> None:
        """Writes the head and the first part of the body."""
        head, self.head = self.head, b""
        self.expected_content_length -= len(body)
        if self.expected_content_length < 0:
            raise RuntimeError("Response content longer than Content-Length")
        if len(body) <= JOINED_BYTES:
            self.transport.write(head + body)
        else:
            self.transport.write(head)
            self.transport.write(body)
        if more:
            return
        if self.expected_content_length:
            raise RuntimeError("Response content shorter than Content-Length")
        self.response_complete = True
        self.message_event.set()
        if not self.keep_alive:
            self.transport.close()
        self.on_response()
