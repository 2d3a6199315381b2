"""A file's lines, cut from its bytes as they arrive."""

from collections.abc import Callable, Iterator

from windlass.datasets.errors import DatasetError, Reason
from windlass.datasets.shapes import hint_of_bytes

# Called with the number of bytes of a file that were read since the last call.
Progress = Callable[[int], None]
MAX_LINE_BYTES = 8 * 1024 * 1024
_HEAD_BYTES = 1024
_BOM = b"\xef\xbb\xbf"


def ignore(_bytes: int) -> None:
    """No progress wanted."""


class LineSplitter:
    """Cuts chunks into numbered lines, holding no more than one line and one chunk.

    Blank lines are counted and left out; a byte order mark and carriage returns are let pass.
    """

    def __init__(self) -> None:
        self._number = 0
        self._rest = bytearray()

    def feed(self, chunk: bytes) -> Iterator[tuple[int, bytes]]:
        """Yields the lines that `chunk` completes; raises DatasetError for one too long."""
        lines = chunk.split(b"\n")
        self._rest += lines[0]
        if len(lines) > 1:
            yield from self._take(bytes(self._rest))
            for line in lines[1:-1]:
                yield from self._take(line)
            self._rest = bytearray(lines[-1])
        if len(self._rest) > MAX_LINE_BYTES:
            raise _too_long(self._number + 1, self._rest)

    def end(self) -> Iterator[tuple[int, bytes]]:
        """Yields the last line, when no newline ended it; raises DatasetError as `feed` does."""
        yield from self._take(bytes(self._rest))

    def _take(self, line: bytes) -> Iterator[tuple[int, bytes]]:
        self._number += 1
        if len(line) > MAX_LINE_BYTES:
            raise _too_long(self._number, line)
        if self._number == 1:
            line = line.removeprefix(_BOM)
        if line and not line.isspace():
            yield self._number, line


def _too_long(number: int, line: bytes | bytearray) -> DatasetError:
    hint = hint_of_bytes(bytes(line[:_HEAD_BYTES])) if number == 1 else ""
    what = f"The line is longer than {MAX_LINE_BYTES // 1024**2} MiB."
    return DatasetError(
        " ".join(filter(None, (what, hint))), reason=Reason.LINE_TOO_LONG, line=number
    )
