"""What a reader expects of lines on a terminal: they fit, and tables are tables."""

import re
from collections.abc import Sequence

# The head of a table: words in capitals, set apart by two spaces.
_HEAD = re.compile(r"[A-Z]+( [A-Z]+)*(  +[A-Z]+( [A-Z]+)*)*")
# What is left of a cell that is cut has to mean something.
_LEAST_LEFT = 4


def faults(lines: Sequence[str], columns: int) -> list[str]:
    """What is wrong with the data that a command prints; nothing where all is well."""
    found = [f"wider than {columns}: {line}" for line in lines if len(line) > columns]
    if lines and _HEAD.fullmatch(lines[0]):
        found += _of_table(lines[0], lines[1:])
    return found


def _of_table(head: str, rows: Sequence[str]) -> list[str]:
    starts = [match.start() for match in re.finditer(r"(?<!\S)(?<!\S )\S", head)]
    found = []
    for row in rows:
        cells = [
            row[start:end].rstrip() for start, end in zip(starts, [*starts[1:], None], strict=True)
        ]
        if "\N{HORIZONTAL ELLIPSIS}" in cells[0]:
            found.append(f"its first cell is cut: {row}")
        for start, cell in zip(starts[1:], cells[1:], strict=True):
            if row[start - 2 : start].strip():
                found.append(f"a cell reaches into the next one: {row}")
            if "\N{HORIZONTAL ELLIPSIS}" in cell and len(cell) <= _LEAST_LEFT:
                found.append(f"nothing is left of a cell: {row}")
    return found
