"""A tenant's fine-tuning file, checked line by line and written as a trainer's rows."""

from collections.abc import Iterator
from pathlib import Path

import msgspec

from windlass.datasets import DatasetError, Reason, parse_example, to_row
from windlass.graders import Grader, missing_field
from windlass_agent.runner.outcome import Failure

MAX_LINE_BYTES = 8 * 1024 * 1024
_BOM = b"\xef\xbb\xbf"


def convert(
    source: Path, target: Path, *, read: str, param: str, grader: Grader | None = None
) -> int:
    """Writes `source` as rows, each with its `line`, and answers how many there are.

    `read` is the backend's `dataset_format`. Raises Failure `invalid_<param>` with line and
    reason, for a line too that lacks a field which `grader` refers to.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    count = 0
    try:
        with target.open("wb") as rows:
            for number, line in _lines(source):
                row = to_row(parse_example(line, number), read, number)
                if grader is not None:
                    _check_item(grader, row["item"], number)
                rows.write(msgspec.json.encode({"line": number, **row}) + b"\n")
                count += 1
    except DatasetError as error:
        raise Failure(f"invalid_{param}", f"{error} ({error.reason})", param=param) from None
    if not count:
        raise Failure(f"invalid_{param}", "The file holds no example.", param=param)
    return count


def _check_item(grader: Grader, item: str, number: int) -> None:
    if (missing := missing_field(grader, msgspec.json.decode(item))) is not None:
        raise DatasetError(
            f"The grader refers to {missing}, which the example does not have.",
            reason=Reason.INVALID_EXAMPLE,
            line=number,
            param=missing,
        )


def _lines(source: Path) -> Iterator[tuple[int, bytes]]:
    with source.open("rb") as file:
        number = 0
        while line := file.readline(MAX_LINE_BYTES + 1):
            number += 1
            if len(line) > MAX_LINE_BYTES:
                raise DatasetError(
                    f"The line is longer than {MAX_LINE_BYTES // 1024**2} MiB.",
                    reason=Reason.LINE_TOO_LONG,
                    line=number,
                )
            if number == 1:
                line = line.removeprefix(_BOM)
            if line.strip():
                yield number, line.rstrip(b"\r\n")
