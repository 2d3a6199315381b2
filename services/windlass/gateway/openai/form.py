"""A multipart form read part by part as it arrives, in bounded memory."""

from collections import deque
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header

from windlass.gateway.asgi import ClientLeft, Receive
from windlass.gateway.errors import HttpError

if TYPE_CHECKING:
    from python_multipart.multipart import MultipartCallbacks

FIELD_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True)
class FormPart:
    """The head of one part; `filename` is None for a plain field."""

    name: str
    filename: str | None


class MultipartForm:
    """Pulls parts out of a request's body.

    Raises HttpError 400 for a body that is no form or ends early, ClientLeft
    when the connection closes.
    """

    def __init__(self, receive: Receive, content_type: bytes):
        kind, options = parse_options_header(content_type)
        boundary = options.get(b"boundary", b"")
        if kind != b"multipart/form-data" or not boundary:
            raise HttpError(400, "Send multipart/form-data with a boundary.")
        self._receive = receive
        self._events: deque[FormPart | bytes | None] = deque()
        self._headers: dict[bytes, bytes] = {}
        self._name = self._value = b""
        self._whole = False
        self._more = True
        callbacks: MultipartCallbacks = {
            "on_part_begin": self._headers.clear,
            "on_header_field": self._on_header_field,
            "on_header_value": self._on_header_value,
            "on_header_end": self._on_header_end,
            "on_headers_finished": self._on_headers_finished,
            "on_part_data": self._on_data,
            "on_part_end": lambda: self._events.append(None),
            "on_end": self._on_end,
        }
        try:
            self._parser = MultipartParser(boundary, callbacks)
        except FormParserError as error:
            raise _malformed() from error

    async def parts(self) -> AsyncIterator[FormPart]:
        """Each part; what its consumer leaves of the data is skipped."""
        while True:
            event = await self._next()
            if isinstance(event, FormPart):
                yield event
            elif event is None and self._whole and not self._events:
                return

    async def data(self) -> AsyncIterator[bytes]:
        """The content of the part that was yielded last."""
        while isinstance(event := await self._next(), bytes):
            yield event

    async def text(self) -> str:
        """The content of a plain field."""
        value = b""
        async for piece in self.data():
            value += piece
            if len(value) > FIELD_BYTES:
                raise HttpError(400, f"A form field exceeds {FIELD_BYTES} bytes.")
        try:
            return value.decode()
        except UnicodeDecodeError as error:
            raise HttpError(400, "A form field must be UTF-8 text.") from error

    async def _next(self) -> FormPart | bytes | None:
        while not self._events:
            if self._whole:
                return None
            if not self._more:
                raise HttpError(
                    400, "The upload ended before the form was complete.", code="truncated"
                )
            message = await self._receive()
            if message["type"] == "http.disconnect":
                raise ClientLeft
            self._more = message.get("more_body", False)
            try:
                self._parser.write(message.get("body", b""))
            except FormParserError as error:
                raise _malformed() from error
        return self._events.popleft()

    def _on_header_field(self, data: bytes, start: int, end: int) -> None:
        self._name += data[start:end]

    def _on_header_value(self, data: bytes, start: int, end: int) -> None:
        self._value += data[start:end]

    def _on_header_end(self) -> None:
        self._headers[self._name.lower()] = self._value
        self._name = self._value = b""

    def _on_headers_finished(self) -> None:
        _, options = parse_options_header(self._headers.get(b"content-disposition", b""))
        filename = options.get(b"filename")
        name = options.get(b"name", b"").decode("utf-8", "replace")
        self._events.append(
            FormPart(name, None if filename is None else filename.decode("utf-8", "replace"))
        )

    def _on_data(self, data: bytes, start: int, end: int) -> None:
        self._events.append(data[start:end])

    def _on_end(self) -> None:
        self._whole = True


def _malformed() -> HttpError:
    return HttpError(400, "The multipart form is malformed.")
