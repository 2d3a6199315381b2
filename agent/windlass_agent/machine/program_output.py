"""The end of a program's output, and the one error in it that a tenant reads."""

import json
import os
import re
from contextlib import suppress
from pathlib import Path

from windlass_agent.machine.path_redaction import redact_paths, without_first_word

# More than a traceback takes.
TAIL_BYTES = 32 * 1024
_CHARACTERS = 300
# Of a text that a tenant chose: no search takes more time than its length.
_READ = 64 * 1024
_BEGINNING = "Traceback (most recent call last):"
# Python's own words where a library has crashed, before the frames of every thread.
_DUMP = "Fatal Python error: "
# Those that are a cause, and not what follows from an error, as an abort is.
_CRASHES = tuple(
    _DUMP + name for name in ("Segmentation fault", "Bus error", "Illegal instruction", "Floating")
)
# What torchrun, vLLM and exception groups write before every line of a traceback.
_PREFIXES = (
    re.compile(r"\[rank\d+\]: ?"),
    re.compile(r"\(\w+[^()]{0,80} ?pid=\d+\) ?"),
    re.compile(r"(?:DEBUG|INFO|WARNING|ERROR|CRITICAL) [\d-]+ [\d:.,]+ \[[^]]{1,80}\] ?"),
    re.compile(r" *[|+] ?"),
)
# An error that only refers to an earlier one.
_REFERENCE = re.compile(
    r"root cause above|stack trace \(above\)|stack trace for root cause", re.IGNORECASE
)
# One that says itself in the next line, as pydantic's do.
_GOES_ON = re.compile(r":$|\d+ validation errors? for \w+$")
# In our own structured logs, the most telling first.
_FIELDS = ("exception", "reason", "error", "message", "event")


def tail(log: Path, most_bytes: int = TAIL_BYTES) -> str:
    """Returns the end of a log, from a word on; empty where none can be read."""
    try:
        with log.open("rb") as file:
            begun = file.seek(max(0, file.seek(0, os.SEEK_END) - most_bytes))
            text = file.read().decode(errors="replace")
            return without_first_word(text) if begun else text
    except OSError:
        return ""


def last_error(output: str) -> str:
    """Returns the error that output ends with as a sentence without paths; empty without output.

    Of a crash this is what Python calls it, of a traceback the exception, of other output the last
    line with words in it.
    """
    lines = [_without_prefix(line) for line in output[-_READ:].splitlines()]
    beginnings = [number for number, line in enumerate(lines) if line.strip() == _BEGINNING]
    errors = [found for number in beginnings if (found := _exception(lines[number + 1 :]))]
    root = [error for error in errors if not _REFERENCE.search(error)]
    # Whoever talked to a process that crashed has an error of its own.
    crash = [line for line in lines if line.startswith(_CRASHES)]
    for error in crash[:1] or (root or errors)[-1:]:
        return _sentence(error)
    words = (line for line in reversed(lines) if re.search(r"\w", line))
    return _sentence(_of_structured_log(next(words, "")))


def before_dump(output: str) -> str:
    """Returns output up to the frames that Python prints of a process that crashed or aborted."""
    return output.partition(_DUMP)[0]


def one_line(text: str, *, characters: int = _CHARACTERS) -> str:
    """Returns text as one line without paths of the machine, cut to so many characters."""
    line = " ".join(redact_paths(text[:_READ]).split())
    return line if len(line) <= characters else f"{line[: characters - 1]}…"


def _sentence(text: str) -> str:
    line = one_line(text)
    return line if not line or line.endswith((".", "!", "?", "…")) else f"{line}."


def _without_prefix(line: str) -> str:
    for prefix in _PREFIXES:
        if found := prefix.match(line):
            line = line[found.end() :]
    return line


def _exception(lines: list[str]) -> str:
    """The exception after a traceback's frames, with the first of its further lines."""
    for number, line in enumerate(lines):
        if line.strip() == _BEGINNING:
            return ""
        if line.strip() and not line.startswith((" ", "\t")):
            goes_on = _GOES_ON.search(line) and number + 1 < len(lines)
            more = lines[number + 1] if goes_on else ""
            return f"{line} {more}"
    return ""


def _of_structured_log(line: str) -> str:
    if not line.startswith("{"):
        return line
    with suppress(ValueError, RecursionError):
        entry = json.loads(line)
        told = [entry[name] for name in _FIELDS if isinstance(entry.get(name), str)]
        if told:
            return last_error(told[0]) if _BEGINNING in told[0] else told[0]
    return line
