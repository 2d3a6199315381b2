"""Conversion of a source to a file that the platform trains on."""

import hashlib
import secrets
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from windlass.datasets.errors import DatasetError, Reason
from windlass.datasets.faults import Faults
from windlass.datasets.lines import Progress, ignore
from windlass.datasets.parsing import Format, detect_format, parse_as
from windlass.datasets.shapes import RowShape, detect_shape
from windlass.datasets.sources.containers import SourceContainer, compression_of, detect_container
from windlass.datasets.sources.examples import make_example
from windlass.datasets.sources.records import Record, read_records
from windlass.datasets.sources.row import Row

# What rows of a shape may be already; they are written as they are.
_AS_IT_IS = {
    RowShape.CHAT: Format.REINFORCEMENT,
    RowShape.PROMPT_COMPLETION: Format.UNPAIRED,
    RowShape.PREFERENCE: Format.PREFERENCE,
}


@dataclass
class Conversion:
    """Result of a conversion; `written` is 0 where there is no file.

    `shape` is what the rows were taken for, `format` what was written, and `left_out` counts
    fields that no example has. `sha256` is of the source.
    """

    container: SourceContainer
    compression: str = ""
    shape: str = ""
    format: str = ""
    sha256: str = ""
    read: int = 0
    written: int = 0
    skipped: Faults = field(default_factory=Faults)
    left_out: Counter[str] = field(default_factory=Counter)


def convert(
    source: Path,
    target: Path,
    *,
    shape: RowShape | None = None,
    container: SourceContainer | None = None,
    strict: bool = False,
    progress: Progress = ignore,
) -> Conversion:
    """Writes the rows of `source` as examples to `target`, whole or not at all.

    Rows that cannot be converted are left out and counted; `strict` raises the first one's
    DatasetError. `progress` hears of the source's bytes as their rows are converted. Raises
    DatasetError too for what cannot be read, or OSError.
    """
    found = Conversion(container or detect_container(source), compression_of(source))
    with source.open("rb") as file:
        found.sha256 = hashlib.file_digest(file, "sha256").hexdigest()
    converter = _Converter(found, shape)
    draft = target.with_name(f".{target.name}.{secrets.token_hex(4)}.part")
    try:
        with draft.open("xb") as lines:
            for record in read_records(source, found.container, progress):
                found.read += 1
                try:
                    lines.write(converter.line(record) + b"\n")
                except DatasetError as error:
                    if strict:
                        raise
                    found.skipped.add(error)
                else:
                    found.written += 1
        if found.written:
            draft.replace(target)
    finally:
        draft.unlink(missing_ok=True)
    return found


class _Converter:
    """Makes lines of records, of which the first good one decides on shape and format."""

    def __init__(self, found: Conversion, asked: RowShape | None) -> None:
        self._found = found
        self._asked = asked
        self._shape: RowShape | Format | None = None
        self._format: Format | None = None
        self._encode = msgspec.json.Encoder().encode

    def line(self, record: Record) -> bytes:
        """The line of an example; raises DatasetError."""
        number, fields = record
        if isinstance(fields, DatasetError):
            raise fields
        shape = self._shape or self._detected(fields, number)
        row = Row(fields, number)
        if isinstance(shape, Format):
            line = self._checked(fields, number)
        else:
            line = self._checked(make_example(shape, row), number)
            self._found.left_out.update(row.left)
        self._shape, self._found.shape = shape, shape.value
        return line

    def _detected(self, fields: dict[str, Any], number: int) -> RowShape | Format:
        """The shape of a row, or the format that it has already."""
        shape = self._asked or detect_shape(fields)
        if shape is None:
            raise _unknown(fields, number)
        if (format_ := _AS_IT_IS.get(shape)) is None:
            return shape
        try:
            line = self._line(fields, number)
            parse_as(format_, line, number)
            is_ready = detect_format(line, number) is format_
        except DatasetError:
            return shape
        return format_ if is_ready else shape

    def _checked(self, example: dict[str, Any], number: int) -> bytes:
        """An example that is what training accepts, and of the file's one format."""
        line = self._line(example, number)
        expected = self._format or detect_format(line, number)
        parse_as(expected, line, number)
        self._format = expected
        self._found.format = expected.value
        return line

    def _line(self, example: dict[str, Any], number: int) -> bytes:
        try:
            return self._encode(example)
        except (TypeError, ValueError, RecursionError, OverflowError) as error:
            raise DatasetError(
                f"The row cannot be written as JSON: {error}.",
                reason=Reason.INVALID_EXAMPLE,
                line=number,
            ) from None


def _unknown(fields: dict[str, Any], number: int) -> DatasetError:
    names = ", ".join(sorted(map(str, fields))[:20]) or "none"
    return DatasetError(
        f"The fields ({names}) are of no known format; name one with --format, or rename them.",
        reason=Reason.UNKNOWN_FORMAT,
        line=number,
    )
