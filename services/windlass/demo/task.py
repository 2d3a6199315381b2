"""Task of the demo: built-in questions, or a user's file split in two."""

import json
import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from windlass.demo import questions

# Of a user's file: one example in five, and at most this many, are held out.
HELD_OUT_SHARE = 5
MAX_HELD_OUT = 50


@dataclass(frozen=True)
class Exam:
    """One held-out question: the conversation up to the answer, and the answer."""

    messages: list[dict[str, Any]]
    answer: str


@dataclass(frozen=True)
class DemoTask:
    """Rows to train on and questions to ask before and after."""

    rows: list[dict[str, Any]]
    exams: list[Exam]

    def write(self, path: Path) -> Path:
        """The training rows as a chat JSONL."""
        path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in self.rows))
        return path


def built_in() -> DemoTask:
    """The demo's own questions."""
    train, held_out = questions.split()
    return DemoTask(
        [question.to_row() for question in train], [_exam(q.to_row()) for q in held_out]
    )


def from_file(path: Path, *, seed: int = 0) -> DemoTask:
    """A user's chat file, shuffled and split.

    Raises ValueError that names the line when the file is not OpenAI chat JSONL,
    and when it is too small to hold something out.
    """
    from windlass.datasets import DatasetError, inspect_file

    try:
        inspect_file(path)
    except DatasetError as error:
        raise ValueError(f"{path}: {error}") from error
    lines = path.read_text(encoding="utf-8-sig").splitlines()
    rows = [json.loads(line) for line in lines if line.strip()]
    random.Random(seed).shuffle(rows)  # noqa: S311 - a reproducible order
    asked = [row for row in rows if row["messages"][-1].get("role") == "assistant"]
    count = min(MAX_HELD_OUT, len(asked) // HELD_OUT_SHARE)
    if count == 0:
        raise ValueError(f"{path}: at least {HELD_OUT_SHARE} examples must end with an answer")
    held_out = asked[:count]
    kept = [row for row in rows if not any(row is other for other in held_out)]
    return DemoTask(kept, [_exam(row) for row in held_out])


def _exam(row: dict[str, Any]) -> Exam:
    *before, last = row["messages"]
    return Exam(before, last["content"] or "")
