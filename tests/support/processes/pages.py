"""The shell blocks of a page of the documentation, run as printed."""

import re
import subprocess
from collections.abc import Mapping
from pathlib import Path

from tests.support.processes import warm

DOCS = Path(__file__).parents[3] / "docs"


def blocks(page: str, language: str, *, after: str = "", until: str = "") -> list[str]:
    """Returns the page's blocks in a language, between two of its headings."""
    text = (DOCS / page).read_text()
    if after:
        text = _split(text, page, after)[1]
    if until:
        text = _split(text, page, until)[0]
    pattern = rf"^```{language}\n(.*?)^```"
    return re.findall(pattern, text, flags=re.DOTALL | re.MULTILINE)


def script(
    page: str, instead: Mapping[str, str] | None = None, *, after: str = "", until: str = ""
) -> str:
    """Returns its `sh` blocks as one script; `instead` replaces printed names."""
    commands = "\n".join(blocks(page, "sh", after=after, until=until))
    for printed, here in (instead or {}).items():
        commands = commands.replace(printed, here)
    return commands


def run(commands: str, environment: Mapping[str, str], folder: Path) -> str:
    """Returns the output of the commands in bash; fails with their errors if one fails.

    Each `windlass` among them is a fork, unless the environment is that of another interpreter.
    """
    done = subprocess.run(
        ["bash", "-c", f"set -euxo pipefail\n{commands}"],
        env=warm.searching(environment),
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout


def _split(text: str, page: str, heading: str) -> tuple[str, str]:
    before, found, rest = text.partition(f"\n## {heading}\n")
    assert found, f"{page} has no heading {heading!r}"
    return before, rest
