"""Detection of the end of an HTTP/1.1 message's body; pure.

Bytes pass unchanged: a body only counts which of them are its own.
"""

import re
from typing import Protocol

_CHUNK_SIZE = re.compile(rb"[0-9A-Fa-f]{1,16}")
_SIZE_LINE = 18


class MalformedHttp(Exception):
    """Bytes that are not the HTTP that we read; `status` is what to answer."""

    def __init__(self, message: str, *, status: int = 400):
        super().__init__(message)
        self.message = message
        self.status = status


class MessageBody(Protocol):
    """The body of one message, as it comes in."""

    until_close: bool

    @property
    def done(self) -> bool:
        """True if all of it was seen."""

    def take(self, data: bytes) -> int:
        """The number of the next bytes that belong to it; fewer than all only when it is done.

        Raises MalformedHttp.
        """

    def passes(self, data: bytes) -> bool:
        """Takes the next bytes if all of them belong to it and more follow; takes none else."""

    def end(self) -> None:
        """The sender has ended its side; raises MalformedHttp when the body is cut off."""


class Sized:
    """A body of a known number of bytes."""

    until_close = False

    def __init__(self, length: int):
        self._left = length

    @property
    def done(self) -> bool:
        """True if all of it was seen."""
        return self._left == 0

    def take(self, data: bytes) -> int:
        """The number of the next bytes that belong to it."""
        taken = min(self._left, len(data))
        self._left -= taken
        return taken

    def passes(self, data: bytes) -> bool:
        """Takes them if more follow."""
        return len(data) < self._left and self.take(data) > 0

    def end(self) -> None:
        """Raises MalformedHttpHttp when bytes are missing."""
        if self._left:
            raise MalformedHttp("The body is cut off.")


class UntilClose:
    """An answer that ends with its connection."""

    until_close = True

    def __init__(self) -> None:
        self.done = False

    def take(self, data: bytes) -> int:
        """All of them."""
        return len(data)

    def passes(self, data: bytes) -> bool:
        """Takes them: only the connection's end is the body's."""
        return True

    def end(self) -> None:
        """Now it is whole."""
        self.done = True


class Chunked:
    """A body in chunks, without extensions and without trailers."""

    until_close = False

    def __init__(self) -> None:
        # Of the present chunk, with the CRLF behind it.
        self._left = 0
        self._line = bytearray()
        self._last = False
        self.done = False

    def take(self, data: bytes) -> int:
        """The number of the next bytes that belong to it; raises MalformedHttp."""
        position, size = 0, len(data)
        while position < size and not self.done:
            if self._left > 2:
                step = min(self._left - 2, size - position)
                self._left -= step
                position += step
            elif self._left == 2 and data[position : position + 2] == b"\r\n":
                # As below, in one step, for the many chunks that come whole.
                self._left = 0
                position += 2
                self.done = self._last
            elif self._left:
                if data[position] != b"\n\r"[self._left - 1]:
                    raise MalformedHttp("A chunk does not end where it should.")
                self._left -= 1
                position += 1
                self.done = self._last and not self._left
            else:
                position = self._size_line(data, position)
        return position

    def passes(self, data: bytes) -> bool:
        """Takes them if they are well formed and more follow."""
        before = self._left, bytes(self._line), self._last
        try:
            if self.take(data) == len(data) and not self.done:
                return True
        except MalformedHttp:
            pass
        self._left, line, self._last = before
        self._line, self.done = bytearray(line), False
        return False

    def _size_line(self, data: bytes, position: int) -> int:
        end = data.find(b"\n", position, position + _SIZE_LINE)
        stop = min(len(data), position + _SIZE_LINE) if end < 0 else end + 1
        line = data[position:stop]
        if end < 0 or self._line:
            self._line += line
            if end < 0 and len(self._line) < _SIZE_LINE:
                return stop
            line, self._line = bytes(self._line), bytearray()
        if not line.endswith(b"\r\n") or not _CHUNK_SIZE.fullmatch(line[:-2]):
            raise MalformedHttp("A chunk's size is not a plain hexadecimal number.")
        length = int(line[:-2], 16)
        # After the last, empty one, CRLF alone: a trailer would be another header.
        self._last = length == 0
        self._left = length + 2
        return stop

    def end(self) -> None:
        """Raises MalformedHttpHttp unless the last chunk was seen."""
        if not self.done:
            raise MalformedHttp("The body is cut off.")
