"""A whole fine-tuning file, checked as its bytes arrive."""

from dataclasses import dataclass
from pathlib import Path

from windlass.datasets.errors import DatasetError, Reason
from windlass.datasets.parsing import Format, detect_format, parse_as

MAX_LINE_BYTES = 8 * 1024 * 1024
_BOM = b"\xef\xbb\xbf"
_CHUNK_BYTES = 1024 * 1024


@dataclass(frozen=True)
class Summary:
    """What a sound file holds; `format` is `chat` or `preference`."""

    format: str
    examples: int
    bytes: int


class Inspector:
    """Checks a file chunk by chunk, holding no more than one line and one chunk.

    One that raised is spent.
    """

    def __init__(self) -> None:
        self._format: Format | None = None
        self._examples = 0
        self._bytes = 0
        self._line = 0
        self._rest = bytearray()

    def feed(self, chunk: bytes) -> None:
        """Takes the next bytes; raises DatasetError at the first line that is wrong."""
        self._bytes += len(chunk)
        lines = chunk.split(b"\n")
        self._rest += lines[0]
        if len(lines) > 1:
            self._take(bytes(self._rest))
            for line in lines[1:-1]:
                self._take(line)
            self._rest = bytearray(lines[-1])
        if len(self._rest) > MAX_LINE_BYTES:
            raise _too_long(self._line + 1)

    def finish(self) -> Summary:
        """Ends the file; raises DatasetError for its last line, or if it held no example."""
        self._take(bytes(self._rest))
        self._rest = bytearray()
        if self._format is None:
            raise DatasetError("The file holds no example.", reason=Reason.EMPTY_FILE)
        return Summary(format=self._format.value, examples=self._examples, bytes=self._bytes)

    def _take(self, line: bytes) -> None:
        self._line += 1
        if len(line) > MAX_LINE_BYTES:
            raise _too_long(self._line)
        if self._line == 1:
            line = line.removeprefix(_BOM)
        if not line or line.isspace():
            return
        if self._format is None:
            self._format = detect_format(line, self._line)
        parse_as(self._format, line, self._line)
        self._examples += 1


def inspect_file(path: Path) -> Summary:
    """Checks the file at `path`; raises DatasetError, or OSError if it cannot be read."""
    inspector = Inspector()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            inspector.feed(chunk)
    return inspector.finish()


def _too_long(number: int) -> DatasetError:
    return DatasetError(
        f"The line is longer than {MAX_LINE_BYTES // 1024**2} MiB.",
        reason=Reason.LINE_TOO_LONG,
        line=number,
    )
