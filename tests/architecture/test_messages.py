"""Sentences that are put together: what stands between two parts stays there."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import windlass
import windlass_agent

# No unit or ending of a name; a value that one of these follows at once lacks a space.
GLUED = re.compile(
    r"(is|are|was|were|must|may|can|cannot|does|do|has|have|needs|requires|already|and|or|of|to)\b"
)


def test_no_word_is_glued_to_the_value_before_it() -> None:
    found = [
        f"{file}:{line}: {text}"
        for package in (windlass, windlass_agent)
        for file in Path(package.__path__[0]).rglob("*.py")
        for line, text in _after_values(ast.parse(file.read_text()))
        if GLUED.match(text)
    ]
    assert found == []


def _after_values(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Line and text of each literal part of a string that follows a value in it."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.JoinedStr):
            continue
        for value, part in zip(node.values, node.values[1:], strict=False):
            if isinstance(value, ast.FormattedValue) and isinstance(part, ast.Constant):
                yield node.lineno, str(part.value)
