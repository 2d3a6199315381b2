"""Records of a source, one after the other: a row, or why there is none."""

import csv
import io
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, Self

import msgspec

from windlass.datasets.errors import DatasetError, Reason
from windlass.datasets.lines import MAX_LINE_BYTES, LineSplitter, Progress, ignore
from windlass.datasets.shapes import column_name
from windlass.datasets.sources.containers import SourceContainer, opened, plain_name, require_arrow
from windlass.datasets.sources.json_array import read_array
from windlass.datasets.sources.row import kind_of

# The number of a record (1-based; of a file of lines, the line's), and what it holds.
Record = tuple[int, dict[str, Any] | DatasetError]
_CHUNK_BYTES = 1024 * 1024
_BATCH_ROWS = 256
_DELIMITERS = ",\t;|"


def read_records(
    path: Path, container: SourceContainer, progress: Progress = ignore
) -> Iterator[Record]:
    """Yields the records of a file, in bounded memory.

    Raises DatasetError where nothing after it can be read, or OSError.
    """
    if container is SourceContainer.PARQUET:
        yield from _parquet(path, progress)
        return
    with opened(path, progress) as stream:
        if container is SourceContainer.CSV:
            yield from _csv(stream, tabbed=plain_name(path).endswith(".tsv"))
        elif container is SourceContainer.ARRAY:
            for number, value in enumerate(read_array(stream), 1):
                yield _record(number, value)
        else:
            yield from _lines(stream)


def _lines(stream: IO[bytes]) -> Iterator[Record]:
    lines = LineSplitter()
    while chunk := stream.read(_CHUNK_BYTES):
        for number, line in lines.feed(chunk):
            yield _line(number, line)
    for number, line in lines.end():
        yield _line(number, line)


def _line(number: int, line: bytes) -> Record:
    try:
        return _record(number, msgspec.json.decode(line))
    except UnicodeDecodeError:
        return number, _unreadable(Reason.NOT_UTF8, "The text is not UTF-8.", number)
    except (msgspec.MsgspecError, RecursionError) as error:
        return number, _unreadable(Reason.INVALID_JSON, f"This is not JSON: {error}.", number)


def _record(number: int, value: object) -> Record:
    if isinstance(value, dict):
        return number, value
    what = f"A row must be an object, not {kind_of(value)}."
    return number, _unreadable(Reason.INVALID_EXAMPLE, what, number)


def _csv(stream: IO[bytes], *, tabbed: bool) -> Iterator[Record]:
    csv.field_size_limit(MAX_LINE_BYTES)
    text = io.TextIOWrapper(stream, encoding="utf-8-sig", newline="")
    number = 0
    lines = _RowLines(text)
    try:
        head = next(lines, "")
        delimiter = "\t" if tabbed else max(_DELIMITERS, key=head.count)
        names = [column_name(cell) for cell in next(csv.reader([head], delimiter=delimiter), [])]
        for number, cells in enumerate(csv.reader(lines, delimiter=delimiter, strict=True), 1):
            lines.row_characters = 0
            if cells:
                yield number, _named(names, cells, number)
    except UnicodeDecodeError as error:
        raise _unreadable(Reason.NOT_UTF8, "The text is not UTF-8.", number + 1) from error
    except csv.Error as error:
        what = f"This is not CSV: {error}."
        raise _unreadable(Reason.NOT_READABLE, what, number + 1) from error


class _RowLines:
    """Lines of a table, whose rows may have several; a row beyond a line's limit is an error."""

    def __init__(self, text: io.TextIOWrapper) -> None:
        self._text = text
        self.row_characters = 0

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> str:
        line = self._text.readline(MAX_LINE_BYTES - self.row_characters + 1)
        self.row_characters += len(line)
        if self.row_characters > MAX_LINE_BYTES:
            raise csv.Error(f"the row is longer than {MAX_LINE_BYTES // 1024**2} MiB")
        if not line:
            raise StopIteration
        return line


def _named(names: list[str], cells: list[str], number: int) -> dict[str, Any] | DatasetError:
    if len(cells) != len(names):
        what = f"The row has {len(cells)} cells, but the header has {len(names)}."
        return _unreadable(Reason.INVALID_EXAMPLE, what, number)
    return {name: cell for name, cell in zip(names, cells, strict=True) if cell}


def _parquet(path: Path, progress: Progress) -> Iterator[Record]:
    arrow = require_arrow("a Parquet file")
    from pyarrow import parquet

    try:
        with parquet.ParquetFile(path) as file:
            number = 0
            # Columns lie apart in it: what is told is the share of its rows.
            bytes_of_row = path.stat().st_size / max(1, file.metadata.num_rows)
            for batch in file.iter_batches(batch_size=_BATCH_ROWS):
                for row in batch.to_pylist():
                    number += 1
                    yield number, row
                progress(round(bytes_of_row * batch.num_rows))
    except (arrow.ArrowException, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise
        what = f"This is not a Parquet file that can be read: {error}."
        raise DatasetError(what, reason=Reason.NOT_READABLE) from None


def _unreadable(reason: Reason, message: str, number: int) -> DatasetError:
    return DatasetError(message, reason=reason, line=number)
