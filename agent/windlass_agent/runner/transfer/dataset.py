"""A tenant's fine-tuning file, checked line by line and written as a trainer's rows."""

from itertools import islice
from pathlib import Path

import msgspec

from windlass.datasets import DatasetError, read_examples, to_row
from windlass.graders import Grader, check_item
from windlass_agent.runner.protocol.outcome import Failure


def convert(
    source: Path,
    target: Path,
    *,
    read: str,
    param: str,
    field: str = "",
    grader: Grader | None = None,
    most: int | None = None,
) -> int:
    """Writes `source` as rows, each with its `line`; returns the number of rows, `most` at most.

    `read` is the backend's `dataset_format`. Raises Failure `invalid_<param>` with line and
    reason, for a line too that lacks a field which `grader` refers to; `field` is the request's
    for the file, where that is not `param`.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    count = 0
    encoder, buffer = msgspec.json.Encoder(), bytearray()
    try:
        with target.open("wb") as rows:
            for number, example in islice(read_examples(source), most):
                row = to_row(example, read, number)
                if grader is not None:
                    check_item(grader, row["item"], number)
                encoder.encode_into({"line": number, **row}, buffer)
                buffer += b"\n"
                rows.write(buffer)
                count += 1
    except DatasetError as error:
        raise Failure(
            f"invalid_{param}", f"{error} ({error.reason})", param=field or param
        ) from None
    return count
