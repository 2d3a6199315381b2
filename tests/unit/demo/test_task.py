"""What the demo asks of a user's own file."""

import json
from pathlib import Path
from typing import Any

import pytest

from windlass.demo import task as tasks

Message = dict[str, Any]


def user(text: Any) -> Message:
    return {"role": "user", "content": text}


def answer(text: Any, **fields: Any) -> Message:
    return {"role": "assistant", "content": text, **fields}


def parts(*texts: str) -> list[dict[str, str]]:
    return [{"type": "text", "text": text} for text in texts]


def chat(*messages: Message) -> dict[str, Any]:
    return {"messages": list(messages)}


def preference(text: str, better: Any, worse: str) -> dict[str, Any]:
    return {
        "input": chat(user(text)),
        "preferred_output": [answer(better)],
        "non_preferred_output": [answer(worse)],
    }


CALL = {"id": "1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
CALLING = {"role": "assistant", "tool_calls": [CALL]}


def write(folder: Path, *rows: dict[str, Any]) -> Path:
    path = folder / "rows.jsonl"
    lines = (json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    path.write_text("".join(lines), encoding="utf-8")
    return path


def refusal(path: Path) -> str:
    with pytest.raises(ValueError) as refused:
        tasks.from_file(path)
    return str(refused.value)


def test_one_in_five_is_held_out(tmp_path: Path) -> None:
    rows = [chat(user(f"q{n}"), answer(f"a{n}")) for n in range(10)]
    task = tasks.from_file(write(tmp_path, *rows))
    assert (len(task.exams), len(task.rows), task.note) == (2, 8, "")
    held_out = [chat(*exam.messages, answer(exam.answer)) for exam in task.exams]
    assert sorted(map(str, [*task.rows, *held_out])) == sorted(map(str, rows))
    again = tasks.from_file(task.write(tmp_path / "train.jsonl"))
    assert len(again.rows) + len(again.exams) == 8


def test_of_a_preference_file_the_better_answer_is_learned(tmp_path: Path) -> None:
    rows = [preference(f"q{n}", f"good {n}", f"bad {n}") for n in range(5)]
    task = tasks.from_file(write(tmp_path, *rows))
    (exam,) = task.exams
    learned = [*task.rows, chat(*exam.messages, answer(exam.answer))]
    expected = [chat(user(f"q{n}"), answer(f"good {n}")) for n in range(5)]
    assert sorted(map(str, learned)) == sorted(map(str, expected))
    assert "--method dpo" in task.note


def test_parts_are_joined(tmp_path: Path) -> None:
    rows = [chat(user(parts("a ", "b")), answer(parts("c", "d"))) for _ in range(5)]
    (exam,) = tasks.from_file(write(tmp_path, *rows)).exams
    assert (exam.question, exam.answer) == ("a b", "cd")


def test_only_what_is_answered_in_text_is_asked(tmp_path: Path) -> None:
    tool = {"role": "tool", "tool_call_id": "1", "content": "red"}
    rows = [
        chat(user("look"), CALLING),
        chat(user("look"), answer(None, tool_calls=[CALL])),
        chat(user("no"), answer(None, refusal="I will not.")),
        chat(user("a"), answer("b"), user("bye")),
        chat(answer("I speak first.")),
        *(chat(user("look"), answer("I look.", tool_calls=[CALL], weight=0), tool, answer("Red."))
          for _ in range(5)),
    ]  # fmt: skip
    task = tasks.from_file(write(tmp_path, *rows))
    (exam,) = task.exams
    assert len(task.rows) == 9
    assert exam.answer == "Red."
    # A chat knows no weights.
    assert exam.messages == [user("look"), answer("I look.", tool_calls=[CALL]), tool]


def test_separators_of_lines_within_a_text_are_text(tmp_path: Path) -> None:
    rows = [chat(user("a\u2028b"), answer("c\x85d")) for _ in range(5)]
    (exam,) = tasks.from_file(write(tmp_path, *rows)).exams
    assert (exam.question, exam.answer) == ("a\u2028b", "c\x85d")


def test_what_cannot_be_asked_is_refused_in_a_sentence(tmp_path: Path) -> None:
    calls = write(tmp_path, *(chat(user("look"), CALLING) for _ in range(9)))
    assert refusal(calls) == (
        f"{calls}: the demo holds out one example in 5 to ask it, and needs 5 or more that end "
        "with an answer in text; 0 do."
    )
    graded = write(tmp_path, chat(user("1+1?")) | {"solution": "2"})
    assert refusal(graded) == (
        f"{graded} holds reinforcement examples; the demo takes chat or preference examples."
    )
    assert refusal(write(tmp_path, {"messages": []})).startswith(f"{graded}: Line 1")
    assert (
        refusal(tmp_path / "none") == f"{tmp_path}/none cannot be read: No such file or directory."
    )
    assert refusal(tmp_path) == f"{tmp_path} cannot be read: Is a directory."
