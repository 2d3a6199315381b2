"""Kill points as the code names them."""

import ast
from collections.abc import Iterator
from pathlib import Path

import windlass
import windlass_agent


def named_points() -> set[str]:
    """Returns the names of all points; of a family, what its names begin with."""
    named = set()
    for package in (windlass, windlass_agent):
        for file in Path(package.__path__[0]).rglob("*.py"):
            text = file.read_text()
            if "reach(" in text:
                named |= set(_points(ast.parse(text)))
    return named


def _points(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or getattr(node.func, "id", "") != "reach":
            continue
        (argument,) = node.args
        if isinstance(argument, ast.JoinedStr):
            argument = argument.values[0]
        assert isinstance(argument, ast.Constant)
        yield str(argument.value)
