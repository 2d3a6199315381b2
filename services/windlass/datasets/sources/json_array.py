"""Elements of a JSON array, read one by one."""

import codecs
import json
import re
from collections.abc import Iterator
from typing import IO, Any

from windlass.datasets.errors import DatasetError, Reason
from windlass.datasets.lines import MAX_LINE_BYTES

_CHUNK_BYTES = 256 * 1024
_SPACE = re.compile(r"[ \t\r\n]*")
_BOM = "\N{ZERO WIDTH NO-BREAK SPACE}"


def read_array(stream: IO[bytes]) -> Iterator[Any]:
    """Yields the elements of the array that a stream holds, never more than one at a time.

    Raises DatasetError, with the element's number, for what is no array of such elements.
    """
    text = _Text(stream)
    if text.peek() != "[":
        raise _malformed(1, "it does not begin with [")
    text.skip()
    number, is_first = 1, True
    while (at := text.peek()) != "]" or not is_first:
        if not is_first and at == "]":
            break
        if not is_first:
            if at != ",":
                raise _malformed(number, f"expected , or ] instead of {at or 'the end'}")
            text.skip()
        yield text.element(number)
        number, is_first = number + 1, False
    text.skip()
    if text.peek():
        raise _malformed(number, "something follows the closing ]")


class _Text:
    """Text of a stream, of which no more than an element and a chunk is held."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self._decode = codecs.getincrementaldecoder("utf-8")()
        self._decoder = json.JSONDecoder()
        self._rest = ""
        self._at = 0
        self._number = 1
        self._more()
        self._rest = self._rest.removeprefix(_BOM)

    def peek(self) -> str:
        """The next character that is no space; empty at the end."""
        while True:
            space = _SPACE.match(self._rest, self._at)
            self._at = space.end() if space else self._at
            if self._at < len(self._rest) or not self._more():
                return self._rest[self._at : self._at + 1]

    def skip(self) -> None:
        """Goes past the next character."""
        self._at += 1

    def element(self, number: int) -> Any:
        """The next value; raises DatasetError."""
        self._number = number
        self.peek()
        while True:
            try:
                value, end = self._decoder.raw_decode(self._rest, self._at)
            except RecursionError:
                raise _malformed(number, "it is nested too deeply") from None
            except ValueError as error:
                self._extend(number, error)
                continue
            # A number may go on in the next chunk.
            if end == len(self._rest) and self._more():
                continue
            self._at = end
            return value

    def _extend(self, number: int, error: ValueError) -> None:
        if len(self._rest) - self._at > MAX_LINE_BYTES or not self._more():
            what = error.msg if isinstance(error, json.JSONDecodeError) else str(error)
            raise _malformed(number, what) from None

    def _more(self) -> bool:
        chunk = self._stream.read(_CHUNK_BYTES)
        try:
            text = self._decode.decode(chunk, final=not chunk)
        except UnicodeDecodeError:
            raise DatasetError(
                "The text is not UTF-8.", reason=Reason.NOT_UTF8, line=self._number
            ) from None
        self._rest, self._at = self._rest[self._at :] + text, 0
        return bool(chunk)


def _malformed(number: int, what: str) -> DatasetError:
    return DatasetError(
        f"This is not a JSON array: {what}.", reason=Reason.INVALID_JSON, line=number
    )
