"""The last words of the demo: what it showed, and the commands to go on with."""

import shlex
import sys
import textwrap
from pathlib import Path

from rich.text import Text

from windlass.client.display.text import printable
from windlass.demo.journey import JourneySummary

SHOWN = 3
_SHOWN_LETTERS = 200
# A longer question is nothing to paste.
_PASTED_LETTERS = 200


def closing(summary: JourneySummary, path: Path, *, data: Path, port: int) -> list[str | Text]:
    """The lines that end the demo, whose summary was written to `path`.

    `data` is the server's folder, and `port` a free one to start it on, or 0 if it is up.
    """
    seconds, count = summary.seconds, len(summary.questions)
    result = (
        f"{summary.right_before} of {count} right before, {summary.right_after} after, "
        f"in {seconds['total']:.0f} s ({seconds['fine_tune']:.0f} s of them the fine-tuning job)."
    )
    lines: list[str | Text] = ["", Text(result, "bold")]
    for one in summary.questions[:SHOWN]:
        lines.append(f"  {_short(one.question)}")
        lines += [f"    before: {_short(one.before)}", f"    after:  {_short(one.after)}"]
    lines += [f"Summary: {path}", f"Data:    {data}"]
    return [*lines, *_going_on(summary, str(data), port)]


def _short(text: str) -> str:
    return textwrap.shorten(printable(text), _SHOWN_LETTERS)


def _going_on(summary: JourneySummary, data: str, port: int) -> list[str | Text]:
    """Commands that a user pastes, one after the other."""
    windlass = str(Path(sys.executable).with_name("windlass"))
    lines: list[str | Text] = [Text("Go on:", "bold")]
    if port:
        lines = [
            Text("Go on: start the platform in another terminal,", "bold"),
            shlex.join([windlass, "serve", "--data", data, "--port", str(port)]),
            Text("and once it has said where it answers:", "bold"),
        ]
    chat = [windlass, "chat", summary.fine_tuned_model, *_prompt(summary), "--data", data]
    return [*lines, shlex.join([windlass, "jobs", "list", "--data", data]), shlex.join(chat)]


def _prompt(summary: JourneySummary) -> list[str]:
    """A question to paste, one that was answered right if there is; else a conversation begins."""
    for one in sorted(summary.questions, key=lambda one: one.after != one.expected):
        text = one.question
        if 0 < len(text) <= _PASTED_LETTERS and text.isprintable() and text[0] != "-":
            return [text]
    return []
