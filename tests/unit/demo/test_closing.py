"""The commands that the demo ends with."""

import shlex
from pathlib import Path

import pytest

from windlass.demo.closing import closing
from windlass.demo.journey import AskedQuestion, JourneySummary

MODEL = "ft:tiny-llama:acme:demo:x"


def commands(*questions: str, port: int = 0) -> list[list[str]]:
    """The words of each command, for a data folder that a shell would take apart."""
    summary = JourneySummary(
        seconds={"total": 9.7, "fine_tune": 3.2},
        fine_tuned_model=MODEL,
        questions=[AskedQuestion(question, "red", "no", "red") for question in questions],
    )
    data = Path("/a folder/it's [b]")
    lines = [str(line) for line in closing(summary, Path("s.json"), data=data, port=port)]
    assert any("in 10 s (3 s of them" in line for line in lines)
    assert "\x1b" not in "".join(lines)
    return [shlex.split(line)[1:] for line in lines if "windlass " in line]


def test_commands_name_folder_port_and_question() -> None:
    data = ["--data", "/a folder/it's [b]"]
    assert commands("What's [/b]?", port=4711) == [
        ["serve", *data, "--port", "4711"],
        ["jobs", "list", *data],
        ["chat", MODEL, "What's [/b]?", *data],
    ]


def test_a_server_that_was_up_is_not_started_again() -> None:
    assert [words[0] for words in commands("Who?")] == ["jobs", "chat"]


@pytest.mark.parametrize("question", ["a\nb", "a\tb", "\x1b[2J", "-o json", "long " * 50, ""])
def test_what_cannot_be_pasted_is_left_to_a_conversation(question: str) -> None:
    assert commands(question)[-1] == ["chat", MODEL, "--data", "/a folder/it's [b]"]
    assert commands(question, "Who?")[-1][2] == "Who?"
