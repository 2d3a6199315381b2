"""Docstrings name what a definition is or does, from their first word on."""

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGES = tuple(
    ROOT / name
    for name in ("services/windlass", "agent/windlass_agent", "plugin/windlass_vllm", "tools")
)
SOURCES = [
    path
    for package in PACKAGES
    for path in sorted(package.rglob("*.py"))
    if path.relative_to(package).parts[0] != "api" and "versions" not in path.parts
]
# A docstring begins with a verb or a noun: "Returns …", "A key of …", "Rules for …".
QUESTIONS = "what whether why how where when who whom whose whoever which"
PRONOUNS = "it its this that these those they their them he she his her we us our you your i my"
NOBODY = "somebody someone something anybody anyone anything nobody nothing none there here"
PREPOSITIONS = "of in on by for from to with without as at after before until since than"
OTHERS = "if unless while because and or but not never only even also so then"
OPENINGS = frozenset(" ".join((QUESTIONS, PRONOUNS, NOBODY, PREPOSITIONS, OTHERS)).split())
Function = ast.FunctionDef | ast.AsyncFunctionDef


def fragments(source: str) -> Iterator[tuple[int, str]]:
    """Yields the line and the text of each docstring that begins otherwise."""
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, Function | ast.ClassDef | ast.Module):
            continue
        if not (docstring := ast.get_docstring(node)):
            continue
        first = docstring.split()[0].strip("`.,:;").lower()
        # A class may be "One row"; a function returns or yields one.
        if first in OPENINGS or (first == "one" and isinstance(node, Function)):
            yield node.body[0].lineno, docstring.splitlines()[0]


def test_docstrings_begin_with_a_verb_or_a_noun() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line}: {text}"
        for path in SOURCES
        for line, text in fragments(path.read_text())
    ]
    assert len(SOURCES) > 500
    assert found == []


def test_a_fragment_is_found() -> None:
    source = 'def get() -> int:\n    """One."""\n\n\nclass Width:\n    """Of a bucket."""\n'
    assert sorted(fragments(source)) == [(2, "One."), (6, "Of a bucket.")]
