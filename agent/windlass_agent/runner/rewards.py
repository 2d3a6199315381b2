"""The reward of a sampled answer: a job's grader, as a function that TRL imports by its path.

It runs in the trainer's process, which knows the grader by a file that the runner left, and an
example by its fields, which come as JSON in the column `item`.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from windlass.graders import Grader, Subject, grade, parse

GRADER_VARIABLE = "WINDLASS_GRADER_FILE"


def graded(
    *,
    completions: Sequence[Sequence[Mapping[str, Any]]],
    item: Sequence[str],
    log_metric: Callable[[str, float], None],
    **_: Any,
) -> list[float]:
    """Returns the reward of each completion; 0 for one that the grader cannot grade.

    How many those were is logged as `ungraded`, a part of all.
    """
    grader = _grader()
    grades = [
        grade(grader, Subject(_text(completion), msgspec.json.decode(fields)))
        for completion, fields in zip(completions, item, strict=True)
    ]
    log_metric("ungraded", sum(bool(each.faults) for each in grades) / len(grades))
    return [each.reward for each in grades]


@cache
def _grader() -> Grader:
    return parse(msgspec.json.decode(Path(os.environ[GRADER_VARIABLE]).read_bytes()))


def _text(completion: Sequence[Mapping[str, Any]]) -> str:
    return "".join(str(message.get("content") or "") for message in completion)
