"""uvicorn's HTTP/1.1 over httptools, within bounds that hold before anyone is authenticated."""

import asyncio
import ssl
import time
from email.utils import formatdate
from functools import lru_cache
from typing import Any, cast
from urllib.parse import unquote

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from windlass.core.ids import new_id
from windlass.gateway.errors import HttpError
from windlass.gateway.listener.bounds import ListenerBounds
from windlass.gateway.listener.connection_limiter import ConnectionLimiter, Use
from windlass.gateway.listener.joined_answer import JoinedAnswer

# What still comes of a request that was answered early is dropped, so that the client reads
# the answer: a connection closed on a sender is reset, and the answer may be lost with it.
LINGER_SECONDS = 2.0
LINGER_BYTES = 256 * 1024
# What is read is parsed by such parts, of heads and of bodies, and no further than to a request
# that waits for others: as requests it takes a hundred times the room.
HEAD_PART, BODY_PART = 4 * 1024, 16 * 1024
# A connection that was told so often to wait ends with the last answer.
MOST_RESTS = 12
# In the scope of a request: the certificate of the connection's client, DER.
CLIENT_CERTIFICATE = "windlass.client_certificate"
_PHRASES = {
    400: b"Bad Request",
    408: b"Request Timeout",
    414: b"URI Too Long",
    431: b"Request Header Fields Too Large",
    503: b"Service Unavailable",
}


class BoundedProtocol(HttpToolsProtocol):
    """One connection; heads, bodies and answers take bounded room and time."""

    def __init__(self, limiter: ConnectionLimiter, **options: Any):
        super().__init__(**options)
        self._limiter = limiter
        self._bounds: ListenerBounds = limiter.bounds
        self.peer = ""
        self._certificate = b""
        self._in_head = True
        # Since the last request ended: at least the bytes of the head that is coming.
        self._head_bytes = 0
        # When the present head, body or end began.
        self._since = self.loop.time()
        # Seconds that the body may still be silent; every byte earns some back.
        self._patience_seconds = self._bounds.body_seconds
        self._checked = self._since
        # Since when an answer waits to be read, and its bytes that wait here.
        self._blocked_since: float | None = None
        self._unread = 0
        # Seconds that it may still wait; every byte that is read earns some back.
        self._reader_seconds = self._bounds.write_seconds
        # What is being answered, before what was asked meanwhile.
        self._answering: JoinedAnswer | None = None
        # Ends the rest of the connection; None: it has none.
        self._resting: asyncio.TimerHandle | None = None
        self._rests = 0
        # What was read of requests that come after those that wait.
        self._unparsed = b""
        self._ending = False
        self._dropped = 0
        self._refusal: HttpError | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Admits the connection or refuses it."""
        super().connection_made(cast(asyncio.Transport, transport))
        self.peer = self.client[0] if self.client else ""
        tls: ssl.SSLObject | None = transport.get_extra_info("ssl_object")
        if tls is not None:
            self._certificate = tls.getpeercert(binary_form=True) or b""
        if not self._limiter.admit(self):
            self._refuse(_busy())
            self.transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forgets the connection."""
        self._limiter.release(self)
        if self._resting is not None:
            self._resting.cancel()
        self._unparsed = b""
        if self._answering is not None and not self._answering.response_complete:
            self._answering.disconnected = True
            self._answering.message_event.set()
        super().connection_lost(exc)

    @property
    def use(self) -> Use:
        """The present use of the connection."""
        if self._resting is not None:
            return Use.IDLE
        if self.cycle is not None and not self.cycle.response_complete:
            return Use.BUSY
        if self._blocked_since is not None:
            # The answer is written, and not yet read.
            return Use.BUSY
        return Use.IDLE if self.cycle is not None and not self._head_bytes else Use.HALF_OPEN

    def abort(self) -> None:
        """Closes at once."""
        if self.transport is not None:
            self.transport.abort()

    def data_received(self, data: bytes) -> None:
        """Feeds the parser, as far as the bounds allow."""
        if self._unparsed:
            # On its way when reading paused, or read for somebody who asks whether the client left.
            data, self._unparsed = self._unparsed + data, b""
        at = 0
        while at < len(data):
            if self._ending:
                # What was read with the head that ended it is no more than one read.
                if not at:
                    self._drop(data)
                return
            if self.pipeline or self._resting is not None:
                self.flow.pause_reading()
                self._unparsed = data[at:]
                return
            end = at + (HEAD_PART if self._in_head else BODY_PART)
            if not self._parse(data[at:end]):
                return
            at = end

    def _parse(self, data: bytes) -> bool:
        """Feeds the parser; returns False where nothing of what follows is to be read."""
        if self._in_head:
            if not self._head_bytes:
                self._since = self.loop.time()
            self._head_bytes += len(data)
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            # Nothing here can be upgraded to; the request is answered as it is.
            return False
        except httptools.HttpParserError:
            self._refuse(self._refusal or _malformed())
            return False
        if self._in_head and self._head_bytes > self._bounds.head_bytes and not self._ending:
            long = len(self.url) > self._bounds.target_bytes
            self._refuse(_target_too_long() if long else _head_too_large())
        return True

    def on_headers_complete(self) -> None:
        """Checks the head and starts the request."""
        bounds = self._bounds
        if len(self.url) > bounds.target_bytes:
            self._refusal = _target_too_long()
        elif len(self.headers) > bounds.headers:
            self._refusal = _head_too_large()
        elif self._head_bytes > bounds.head_bytes:
            # More came than a head may have; how much of it was the head's?
            size = sum(len(name) + len(value) + 4 for name, value in self.headers)
            if size + len(self.url) > bounds.head_bytes:
                self._refusal = _head_too_large()
        if self._refusal is not None:
            raise ValueError(self._refusal.message)
        self._in_head = False
        self._head_bytes = 0
        self._patience_seconds = bounds.body_seconds
        self._reader_seconds = bounds.write_seconds
        self._begin()

    def _begin(self) -> None:
        """Starts the request, or puts it after those before, as uvicorn's protocol does."""
        parser, scope, before = self.parser, self.scope, self.cycle
        version, target = parser.get_http_version(), httptools.parse_url(self.url)
        path = target.path.decode("ascii")
        scope["method"], scope["http_version"] = parser.get_method().decode("ascii"), version
        scope["path"], scope["raw_path"] = unquote(path) if "%" in path else path, target.path
        scope["query_string"] = target.query or b""
        if self._certificate:
            cast(dict[str, Any], scope)[CLIENT_CERTIFICATE] = self._certificate
        self.cycle = JoinedAnswer(
            scope=scope,
            transport=self.transport,
            flow=self.flow,
            logger=self.logger,
            access_logger=self.access_logger,
            access_log=False,
            default_headers=_headers_of(int(time.time())),
            message_event=asyncio.Event(),
            expect_100_continue=self.expect_100_continue,
            keep_alive=version != "1.0" and parser.should_keep_alive(),
            on_response=self.on_response_complete,
        )
        is_free = before is None or before.response_complete
        if is_free and self._resting is None:
            self._start_asgi_task(self.cycle, self.app)
        else:
            self.flow.pause_reading()
            self.pipeline.appendleft((self.cycle, self.app))

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        self._answering = cast(JoinedAnswer, cycle)
        super()._start_asgi_task(cycle, app)

    def on_body(self, body: bytes) -> None:
        """Buffers a part of the body, or drops it if nobody reads it."""
        if self.cycle.response_complete:
            self._drop(body)
            return
        earned = self._patience_seconds + len(body) / self._bounds.body_rate
        self._patience_seconds = min(earned, self._bounds.body_seconds)
        super().on_body(body)

    def on_message_complete(self) -> None:
        """Expects the next head."""
        self._in_head = True
        self._head_bytes = 0
        super().on_message_complete()
        # A body that was dropped has come to its end all the same.
        self.cycle.more_body = False
        self._dropped = 0

    def on_response_complete(self) -> None:
        """Notes when the client may have read its answer, and begins what came after it."""
        self._since = self.loop.time()
        if self.transport.is_closing():
            return
        if self._answering is not None and self._answering.rest_seconds:
            self._rests += 1
            if self._rests > MOST_RESTS:
                self.transport.close()
                return
            self.flow.pause_reading()
            self._resting = self.loop.call_later(self._answering.rest_seconds, self._go_on)
            return
        self._go_on()

    def _go_on(self) -> None:
        """Begins what was asked meanwhile, or reads on."""
        self._resting = None
        if self.transport.is_closing():
            return
        if self.pipeline:
            # Nothing more is read before it is answered: each read may hold thousands.
            self._start_asgi_task(*self.pipeline.pop())
            return
        self.flow.resume_reading()
        if self._unparsed:
            self.data_received(b"")

    def pause_writing(self) -> None:
        """Notes since when the client does not read."""
        self._blocked_since, self._unread = self.loop.time(), self._buffered()
        super().pause_writing()

    def resume_writing(self) -> None:
        """The client reads again."""
        self._settle(self.loop.time())
        self._blocked_since = None
        super().resume_writing()

    def check(self, now: float) -> str:
        """Closes the connection if a time limit has passed; returns the reason, or nothing."""
        elapsed, self._checked = now - self._checked, now
        if self.transport is None:
            return ""
        self._settle(now)
        if self._blocked_since is not None and not self._ending:
            # Written is not read: what ends a connection that rests would cut off the answer.
            self._since = now
        waited = now - self._since
        if self._reader_seconds < 0:
            self.abort()
            return "unread_answer"
        if self._ending or self.transport.is_closing():
            return self._end(waited, "")
        if self.use is Use.HALF_OPEN:
            return self._check_head(waited)
        if self.cycle.response_complete:
            # The answer is out; the body still comes.
            if self.cycle.more_body:
                return self._end(waited, "unread_body")
            # Of no timer: one for each answer would take a fiftieth of a chat.
            if waited > self.timeout_keep_alive:
                self.transport.close()
            return ""
        return self._check_body(elapsed)

    def _settle(self, now: float) -> None:
        """Counts the time that the answer has waited for its reader, and what was read."""
        if self._blocked_since is None:
            return
        unread = self._buffered()
        earned = (self._unread - unread) / self._bounds.answer_rate
        left = self._reader_seconds - (now - self._blocked_since) + earned
        self._reader_seconds = min(left, self._bounds.write_seconds)
        self._blocked_since, self._unread = now, unread

    def _buffered(self) -> int:
        return self.transport.get_write_buffer_size() if self.transport is not None else 0

    def _check_head(self, waited: float) -> str:
        if waited < self._bounds.head_seconds:
            return ""
        if self._head_bytes:
            self._refuse(_late("head"))
        else:
            self.transport.close()
        return "late_head"

    def _check_body(self, elapsed: float) -> str:
        if not self.cycle.more_body or self.flow.read_paused:
            return ""
        self._patience_seconds -= elapsed
        if self._patience_seconds > 0:
            return ""
        self._refuse(_late("body"))
        return "late_body"

    def _end(self, waited: float, reason: str) -> str:
        if waited > LINGER_SECONDS:
            self.abort()
            return reason
        return ""

    def _drop(self, data: bytes) -> None:
        self._dropped += len(data)
        if self._dropped > LINGER_BYTES:
            self.abort()

    def _refuse(self, error: HttpError) -> None:
        """Returns in place of the application, and ends the connection."""
        self._ending = True
        self._since = self.loop.time()
        cycle = self._answering
        if cycle is not None and not cycle.response_complete:
            cycle.disconnected = True
            cycle.message_event.set()
            self.flow.resume_writing()
            if cycle.response_started:
                self.abort()
                return
        body = error.body()
        self.transport.write(
            b"HTTP/1.1 %d %b\r\ncontent-type: application/json\r\ncontent-length: %d\r\n"
            b"x-request-id: %b\r\nconnection: close\r\n\r\n%b"
            % (error.status, _PHRASES[error.status], len(body), new_id("req_").encode(), body)
        )
        self.flow.resume_reading()
        if self.transport.can_write_eof():
            self.transport.write_eof()


@lru_cache(maxsize=1)
def _headers_of(second: int) -> list[tuple[bytes, bytes]]:
    """Headers of every answer to a request of that second."""
    return [(b"date", formatdate(second, usegmt=True).encode())]


def _malformed() -> HttpError:
    return HttpError(400, "Invalid HTTP request received.", code="invalid_http")


def _late(part: str) -> HttpError:
    return HttpError(
        408,
        f"The request's {part} arrived too slowly.",
        kind="timeout_error",
        code="request_timeout",
    )


def _target_too_long() -> HttpError:
    return HttpError(414, "The request's URL is too long.", code="url_too_long")


def _head_too_large() -> HttpError:
    return HttpError(431, "The request's headers are too large.", code="headers_too_large")


def _busy() -> HttpError:
    return HttpError(
        503,
        "Too many connections are open; try again.",
        kind="service_unavailable_error",
        code="server_busy",
    )
