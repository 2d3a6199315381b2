"""Completion in bash of words with colons, which bash takes for several.

Readline breaks words at the characters of COMP_WORDBREAKS, among them the colon, and replaces
only what follows the last of them. Names of models have colons.
"""

import os

from typer import Typer
from typer._click.shell_completion import CompletionItem, add_completion_class
from typer._completion_classes import BashComplete
from typer.main import get_command

PROGRAM = "windlass"
VARIABLE = "_WINDLASS_COMPLETE"
COLON = ":"


class ColonComplete(BashComplete):
    """Bash's completion, with the pieces of a word put together again."""

    _typed = ""

    def get_completion_args(self) -> tuple[list[str], str]:
        """The whole words before the cursor, and the beginning of the one at it."""
        before, incomplete = super().get_completion_args()
        pieces = joined([*before, incomplete])
        # What is on the line stays there: completions begin behind its last colon.
        if pieces[-1] != incomplete:
            self._typed = pieces[-1][: pieces[-1].rindex(COLON) + 1]
        return pieces[:-1], pieces[-1]

    def format_completion(self, item: CompletionItem) -> str:
        """The part of a completion that bash does not have yet."""
        return super().format_completion(item).removeprefix(self._typed)


def joined(pieces: list[str]) -> list[str]:
    """The words of a command line of which colons are pieces of their own."""
    words: list[str] = []
    is_open = False
    for piece in pieces:
        is_colon = bool(piece) and not piece.strip(COLON)
        if words and (is_open or is_colon):
            words[-1] += piece
        else:
            words.append(piece)
        is_open = is_colon
    return words


def completes(app: Typer) -> bool:
    """Answers bash when it asks for completions; whether it did."""
    if os.environ.get(VARIABLE) != "complete_bash":
        return False
    command = get_command(app)
    add_completion_class(ColonComplete, "bash")
    command(prog_name=PROGRAM)
    return True
