"""Task of the demo: built-in questions, or a user's file split in two."""

import json
import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from windlass.demo import questions

Message = dict[str, Any]
Row = dict[str, Any]

# Of a user's file: one example in five, and at most this many, are held out.
HELD_OUT_SHARE = 5
MAX_HELD_OUT = 50
_PREFERENCE_NOTE = (
    "The demo trains on the preferred answers alone. What learns from pairs is "
    "`windlass jobs create --method dpo`."
)


@dataclass(frozen=True)
class Exam:
    """One held-out question: the conversation up to the answer, and the answer without the blanks
    around it.
    """

    messages: list[Message]
    answer: str

    @property
    def question(self) -> str:
        """The text of the message that is answered."""
        return _text(self.messages[-1])


@dataclass(frozen=True)
class DemoTask:
    """Chat rows to train on, questions to ask before and after, and a sentence on either."""

    rows: list[Row]
    exams: list[Exam]
    note: str = ""

    def write(self, path: Path) -> Path:
        """The training rows as JSONL."""
        lines = (json.dumps(row, ensure_ascii=False) + "\n" for row in self.rows)
        path.write_text("".join(lines), encoding="utf-8")
        return path


def built_in() -> DemoTask:
    """The demo's own questions."""
    train, held_out = questions.split()
    exams = [Exam(question.to_row()["messages"][:1], question.answer) for question in held_out]
    return DemoTask([question.to_row() for question in train], exams)


def from_file(path: Path, *, seed: int = 0) -> DemoTask:
    """A user's chat or preference file, shuffled and split.

    Raises ValueError that names the line when the file is no training file, and that says what
    is needed when it has another format, or too few answers in text to hold some out.
    """
    found, rows = _read(path)
    if found == "preference":
        rows = [_preferred(row) for row in rows]
    elif found != "chat":
        raise ValueError(
            f"{path} holds {found} examples; the demo takes chat or preference examples."
        )
    random.Random(seed).shuffle(rows)  # noqa: S311 - a reproducible order
    exams = {index: exam for index, row in enumerate(rows) if (exam := _exam(row))}
    count = min(MAX_HELD_OUT, len(exams) // HELD_OUT_SHARE)
    if count == 0:
        raise ValueError(
            f"{path}: the demo holds out one example in {HELD_OUT_SHARE} to ask it, and needs "
            f"{HELD_OUT_SHARE} or more that end with an answer in text; {len(exams)} do."
        )
    held_out = dict(list(exams.items())[:count])
    kept = [row for index, row in enumerate(rows) if index not in held_out]
    note = _PREFERENCE_NOTE if found == "preference" else ""
    return DemoTask(kept, list(held_out.values()), note)


def _read(path: Path) -> tuple[str, list[Row]]:
    """The format of a training file and its rows; raises ValueError."""
    from windlass.datasets import DatasetError, inspect_file
    from windlass.datasets.inspection import read_lines

    try:
        found = inspect_file(path).format
        return found, [json.loads(line) for _, line in read_lines(path)]
    except DatasetError as error:
        raise ValueError(f"{path}: {error}") from error
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror}.") from error


def _preferred(row: Row) -> Row:
    """The conversation of a pair that ends with the better answer."""
    return {**row["input"], "messages": [*row["input"]["messages"], *row["preferred_output"]]}


def _exam(row: Row) -> Exam | None:
    """The question of an example; None for one that asks or answers in something else than text."""
    *asked, last = row["messages"]
    answer = _text(last).strip()
    is_old = any(message["role"] == "function" or "function_call" in message for message in asked)
    if last["role"] != "assistant" or not asked or not answer or is_old:
        return None
    return Exam([_without_weight(message) for message in asked], answer)


def _text(message: Message) -> str:
    """The text of a message's content, which may come in parts, or not at all."""
    content = message.get("content") or ""
    return content if isinstance(content, str) else "".join(part["text"] for part in content)


def _without_weight(message: Message) -> Message:
    """A message without what only a training reads, and a chat refuses."""
    return {name: value for name, value in message.items() if name != "weight"}
