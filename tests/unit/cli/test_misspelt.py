"""A misspelt command or option is answered by the one that was meant."""

import re
from collections.abc import Iterator

import pytest
import typer.main
from typer.core import TyperGroup

from windlass.cli.framework.failures import USAGE
from windlass.cli.main import app


def walk(command: TyperGroup, *path: str) -> Iterator[tuple[tuple[str, ...], list[str]]]:
    """Every command with what it may be followed by: its commands, or its long options."""
    for name, below in command.commands.items():
        if isinstance(below, TyperGroup):
            yield (*path, name), list(below.commands)
            yield from walk(below, *path, name)
        else:
            flags = [flag for one in below.params for flag in one.opts if flag.startswith("--")]
            yield (*path, name), flags


# One of two letters could be anything.
FEW = 3
ROOT = typer.main.get_command(app)
assert isinstance(ROOT, TyperGroup)
PLACES = [((), list(ROOT.commands)), *walk(ROOT)]


def misspelt(word: str) -> str:
    """The word with two letters swapped, and the same one where it has too few."""
    dashes, name = word[: -len(word.lstrip("-"))], word.lstrip("-")
    if len(name) < FEW:
        return word
    return f"{dashes}{name[0]}{name[2]}{name[1]}{name[3:]}"


@pytest.mark.parametrize(("path", "words"), PLACES, ids=[" ".join(path) for path, _ in PLACES])
def test_what_was_meant_is_named(path: tuple[str, ...], words: list[str]) -> None:
    for word in words:
        if (wrong := misspelt(word)) in words:
            continue
        with pytest.raises(typer.TyperException) as refused:
            # In this mode errors are raised instead of printed.
            ROOT.main([*path, wrong], prog_name="windlass", standalone_mode=False)
        said = str(refused.value.format_message())
        assert (refused.value.exit_code, said.startswith("No such ")) == (USAGE, True)
        assert word in re.findall(r"[\w-]+", said.replace(wrong, "")), said
