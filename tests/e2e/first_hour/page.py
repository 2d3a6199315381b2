"""The page of the first hour: its console blocks are commands, each with what it prints."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

# A key, even one of a server that is gone, is nothing to print.
_KEY = re.compile(r"\bwl-\w{20,}")
# The terminal of the transcript.
COLUMNS = 80
SERVE = "windlass serve"
# The beginning of a job's event.
EVENT = re.compile(r"\d\d:\d\d:\d\d  ")
EVENT_AT = len("00:00:00  ")
ASSIGNMENT = re.compile(r"([A-Z_]+)=(.*)")
_BLOCK = re.compile(r"^```console\n(\$ .*?)^```$", re.DOTALL | re.MULTILINE)
# What differs from run to run or from machine to machine, in the order of replacement.
_VARIABLE = (
    (re.compile(r"\b(ftjob|file|proj|org|mv|cluster|user|key|sk|req)[-_][\w.…-]+"), r"\1-…"),
    (re.compile(r"\bft:\S+"), "ft:…"),
    (re.compile(r"\bwl-\S+"), "wl-…"),
    (re.compile(r"/(tmp|var|home|root)/\S*( hour \S*)?"), "FOLDER"),
    (re.compile(r"[━╸╺]+"), "--"),
    (re.compile(r"\d+([.:,]\d+)*"), "#"),
    (re.compile(r"# ([kMG]i?B|B)\b"), "# bytes"),
    (re.compile(r"\s+"), ""),
)


@dataclass(frozen=True)
class Step:
    """A command of the page, and the lines that are printed below it."""

    command: str
    printed: tuple[str, ...] = ()

    @property
    def code(self) -> int:
        """The exit code: the page shows that of a command which is refused."""
        return int(self.command.partition("# exit code ")[2] or 0)


def steps(page: str) -> list[Step]:
    """The commands of a page in their order; blocks that show no `$` are not played."""
    return [step for block in _BLOCK.findall(page) for step in _steps(block)]


def _steps(block: str) -> list[Step]:
    found: list[Step] = []
    for line in block.splitlines():
        if line.startswith("$ "):
            found.append(Step(line.removeprefix("$ ")))
        else:
            found[-1] = Step(found[-1].command, (*found[-1].printed, line))
    return found


def with_transcript(page: str, played: Sequence[Step]) -> str:
    """The page with what its commands printed; raises ValueError if it has other commands."""
    rest = iter(played)

    def block(match: "re.Match[str]") -> str:
        lines = []
        for step in _steps(match[1]):
            now = next(rest)
            if now.command != step.command:
                raise ValueError(f"{now.command} was played for {step.command}")
            lines += [f"$ {now.command}", *now.printed]
        return _KEY.sub("wl-…", "\n".join(["```console", *lines, "```"]))

    return _BLOCK.sub(block, page)


def again(command: str, at: str) -> str:
    """The command where the page was played before, its new things called `at`; empty for none.

    What trained is not trained again but followed from its beginning, which prints the same.
    """
    if command.endswith("--follow"):
        return 'windlass jobs events -f "$JOB"'
    if command == SERVE or ASSIGNMENT.fullmatch(command):
        return ""
    if command.startswith("windlass models import"):
        return f"{command} --id {at}"
    return command.replace("create research", f"create {at}").replace("my backup", f"my {at}")


def stable(lines: Sequence[str]) -> str:
    """Text without ids, numbers, addresses, folders, widths and breaks, to compare two runs."""
    ordered: list[str] = []
    for _, some in groupby(lines, lambda line: bool(EVENT.match(line))):
        # Events of the server and of the runner come in either order.
        ordered += sorted(some, key=lambda line: line[EVENT_AT:] if EVENT.match(line) else "")
    # A line that ends at the terminal's edge goes on in the next.
    text = "".join(line if len(line) >= COLUMNS else f"{line} " for line in ordered)
    for pattern, instead in _VARIABLE:
        text = pattern.sub(instead, text)
    return text
