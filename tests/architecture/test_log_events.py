"""Log events have stable names: operators search for them and alert on them."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCES = [
    path
    for folder in ("services/windlass", "agent/windlass_agent")
    for path in (ROOT / folder).rglob("*.py")
    if "api" not in path.relative_to(ROOT).parts[:3]
]
LEVELS = {"debug", "info", "warning", "error", "exception", "critical"}
EVENT = re.compile(r"[a-z][a-z0-9]*(_[a-z0-9]+)+")


def events(source: str) -> list[ast.expr]:
    """Returns the first argument of every call of a logger."""
    return [
        node.args[0]
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in LEVELS
        and ast.unparse(node.func.value).lstrip("_") in ("log", "logger")
    ]


def is_named(event: ast.expr) -> bool:
    return (
        isinstance(event, ast.Constant)
        and isinstance(event.value, str)
        and EVENT.fullmatch(event.value) is not None
    )


def test_events_are_named_in_snake_case() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{event.lineno}: {ast.unparse(event)}"
        for path in SOURCES
        for event in events(path.read_text())
        if not is_named(event)
    ]
    assert not found


@pytest.mark.parametrize(
    ("call", "named"),
    [
        ('log.info("tunnel_opened", cluster_id=one)', True),
        ('_log.warning("tunnel open")', False),
        ('log.error(f"tunnel_{state}")', False),
        ('log.info("Tunnel_opened")', False),
        ('log.info("ended")', False),
    ],
)
def test_an_event_is_a_literal_of_two_words_or_more(call: str, named: bool) -> None:
    assert [is_named(event) for event in events(call)] == [named]
