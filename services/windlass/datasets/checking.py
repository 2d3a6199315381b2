"""A check of a whole training file, which goes on after a fault."""

from dataclasses import dataclass, field
from pathlib import Path

from windlass.datasets.conversion import to_row
from windlass.datasets.errors import DatasetError, Reason
from windlass.datasets.faults import Faults
from windlass.datasets.inspection import read_lines
from windlass.datasets.lines import Progress, ignore
from windlass.datasets.parsing import Format, detect_format, parse_as
from windlass.datasets.shapes import hint_of_bytes
from windlass.datasets.token_counts import TokenCounts

# What a trainer reads of each format, where no method says otherwise.
READ_BY_FORMAT = {
    Format.CHAT: "chat",
    Format.PREFERENCE: "preference",
    Format.UNPAIRED: "unpaired_preference",
    Format.REINFORCEMENT: "reinforcement",
}


@dataclass
class FileCheck:
    """Contents of a file, and everything that is wrong with it."""

    format: Format | None = None
    examples: int = 0
    faults: Faults = field(default_factory=Faults)


def check_file(
    path: Path, counts: TokenCounts, *, read: str | None = None, progress: Progress = ignore
) -> FileCheck:
    """Checks every line, and counts the tokens of the good ones; raises OSError.

    `read` is what the trainer reads, which the file's format decides by default.
    """
    found = FileCheck()
    try:
        for number, line in read_lines(path, progress):
            try:
                _check_line(found, counts, line, number, read)
            except DatasetError as error:
                found.faults.add(error)
                if number == 1 and hint_of_bytes(line):
                    # Another kind of file: every line of it would be wrong.
                    return found
        if not found.examples and not found.faults.count:
            raise DatasetError("The file contains no examples.", reason=Reason.EMPTY_FILE)
        _check_lengths(found, counts)
    except DatasetError as error:
        # Of the whole file, or of a line after which nothing can be read.
        found.faults.add(error)
    return found


def _check_lengths(found: FileCheck, counts: TokenCounts) -> None:
    if not found.examples or not counts.is_exact:
        return
    message = ""
    if counts.all_too_long:
        message = f"All {found.examples} examples exceed {counts.limit} tokens."
    elif not counts.kept:
        message = "No example has an assistant message to learn from."
    if message:
        raise DatasetError(message, reason=Reason.INVALID_EXAMPLE)


def _check_line(
    found: FileCheck, counts: TokenCounts, line: bytes, number: int, read: str | None
) -> None:
    expected = found.format or detect_format(line, number)
    example = parse_as(expected, line, number)
    found.format = expected
    row = to_row(example, read or READ_BY_FORMAT[expected], number)
    try:
        counts.add(row)
    except ValueError as error:
        raise DatasetError(
            f"{error}.", reason=Reason.INVALID_EXAMPLE, line=number, param="messages"
        ) from None
    found.examples += 1
