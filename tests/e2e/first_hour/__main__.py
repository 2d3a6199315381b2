"""`python -m tests.e2e.first_hour`: plays the page and writes what it printed into it."""

import sys
import tempfile
from pathlib import Path

from tests.e2e.first_hour.page import COLUMNS, Step, steps, with_transcript
from tests.e2e.first_hour.player import PAGE, Newcomer, prepare
from tests.support.environments import made_once, postgres


def main() -> int:
    """Exit code 1 when a command of the page ended otherwise than the page says."""
    page, played, wrong = PAGE.read_text(), [], 0
    with tempfile.TemporaryDirectory(prefix="first hour ") as name:
        folder = Path(name)
        prepare(folder, made_once.tiny_model())
        newcomer = Newcomer(folder, COLUMNS)
        with newcomer.server():
            for step in steps(page):
                printed = newcomer.play(step.command)
                wrong += printed.code != step.code
                print(f"$ {step.command}", *printed.lines, f"[{printed.code}]", sep="\n")
                played.append(Step(step.command, printed.lines))
        postgres.remove_database(folder / "data")
    PAGE.write_text(with_transcript(page, played))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
