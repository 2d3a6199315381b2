"""A whole fine-tuning file: checked as its bytes arrive, or read example by example."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from windlass.datasets.errors import DatasetError, Reason
from windlass.datasets.examples import Example
from windlass.datasets.lines import LineSplitter, Progress, ignore
from windlass.datasets.parsing import Format, detect_format, parse_as

_CHUNK_BYTES = 1024 * 1024


@dataclass(frozen=True)
class FileSummary:
    """Summary of a valid file; `format` is one of `Format`."""

    format: str
    examples: int
    bytes: int


class Inspector:
    """Checks a file chunk by chunk, holding no more than one line and one chunk.

    One that raised is spent.
    """

    def __init__(self) -> None:
        self._lines = LineSplitter()
        self._parser = _Parser()
        self._bytes = 0

    def feed(self, chunk: bytes) -> None:
        """Takes the next bytes; raises DatasetError at the first line that is wrong."""
        self._bytes += len(chunk)
        for number, line in self._lines.feed(chunk):
            self._parser.parse(line, number)

    def finish(self) -> FileSummary:
        """Ends the file; raises DatasetError for its last line, or if it held no example."""
        for number, line in self._lines.end():
            self._parser.parse(line, number)
        found = self._parser.end()
        return FileSummary(format=found.value, examples=self._parser.examples, bytes=self._bytes)


def inspect_file(path: Path, progress: Progress = ignore) -> FileSummary:
    """Checks the file at `path`; raises DatasetError, or OSError if it cannot be read."""
    inspector = Inspector()
    for chunk in _chunks(path, progress):
        inspector.feed(chunk)
    return inspector.finish()


def read_examples(path: Path, progress: Progress = ignore) -> Iterator[tuple[int, Example]]:
    """Yields each example with its line's number, all of one format.

    Raises DatasetError for just what an Inspector refuses, or OSError.
    """
    parser = _Parser()
    for number, line in read_lines(path, progress):
        yield number, parser.parse(line, number)
    parser.end()


def read_lines(path: Path, progress: Progress = ignore) -> Iterator[tuple[int, bytes]]:
    """Yields each line that is not blank with its number; raises DatasetError or OSError."""
    lines = LineSplitter()
    for chunk in _chunks(path, progress):
        yield from lines.feed(chunk)
    yield from lines.end()


class _Parser:
    """Decodes the lines of one file, whose first example decides on the format."""

    def __init__(self) -> None:
        self.examples = 0
        self._format: Format | None = None

    def parse(self, line: bytes, number: int) -> Example:
        if self._format is None:
            self._format = detect_format(line, number)
        example = parse_as(self._format, line, number)
        self.examples += 1
        return example

    def end(self) -> Format:
        if self._format is None:
            raise DatasetError("The file contains no examples.", reason=Reason.EMPTY_FILE)
        return self._format


def _chunks(path: Path, progress: Progress) -> Iterator[bytes]:
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            yield chunk
            progress(len(chunk))
