"""Columns of tables: what each shows of an item, and how rows become lines."""

import json
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import typer

from windlass.client.display.text import human_size, printable

Item = dict[str, Any]
# Header of a column to what it shows of an item.
Columns = Mapping[str, Callable[[Item], str]]

Paint = Callable[[str, str], str]
_COLORS = {
    "green": {"succeeded", "processed", "active", "running", "live"},
    "red": {"failed", "error", "revoked", "away"},
    "yellow": {"paused", "cancelled", "pausing", "cancelling", "archived"},
}


def unpainted(_cell: str, padded: str) -> str:
    """A padded cell as it is."""
    return padded


def style(cell: str) -> str:
    """The color of a word that says how something stands; empty for others."""
    return next((color for color, words in _COLORS.items() if cell in words), "")


def cells(items: Sequence[Item], columns: Columns) -> list[list[str]]:
    """The text of every cell, safe for a terminal."""
    return [[printable(show(item)) or "-" for show in columns.values()] for item in items]


def painted(cell: str, padded: str) -> str:
    """A padded cell in the color of its word."""
    return typer.style(padded, fg=style(cell)) if style(cell) else padded


def aligned(rows: Sequence[Sequence[str]], paint: Paint = unpainted) -> list[str]:
    """Rows as lines whose columns are aligned, nothing cut off: ids are there to be copied."""
    if not rows:
        return []
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            paint(cell, cell.ljust(width)) for cell, width in zip(row, widths, strict=True)
        ).rstrip()
        for row in rows
    ]


def spelled(value: Any) -> str:
    """A value of an object on one line."""
    if value is None or value in ([], {}):
        return ""
    return printable(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))


def field(dotted: str) -> Callable[[Item], str]:
    """Shows the value at a path of keys."""

    def show(item: Item) -> str:
        value: Any = item
        for key in dotted.split("."):
            value = value.get(key) if isinstance(value, dict) else None
        return spelled(value)

    return show


def number(dotted: str) -> Callable[[Item], str]:
    """Shows a real number with four significant digits."""
    text = field(dotted)
    return lambda item: f"{float(text(item)):.4g}" if text(item) else ""


def moment(key: str) -> Callable[[Item], str]:
    """Shows Unix seconds as local time."""
    return lambda item: (
        time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(item[key])) if item.get(key) else ""
    )


def size(dotted: str) -> Callable[[Item], str]:
    """Shows a number of bytes."""
    text = field(dotted)
    return lambda item: human_size(int(text(item) or 0))
