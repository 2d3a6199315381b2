"""What a command prints: data on stdout in the form that was asked for, all else on stderr."""

import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from functools import cached_property
from typing import TYPE_CHECKING, Any

import typer

from windlass.client.text import human_size, printable

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

Item = dict[str, Any]
# Header of a column to what it shows of an item.
Columns = Mapping[str, Callable[[Item], str]]

# OpenAI's names of moments that do not end in `_at`.
_MOMENTS = {"created", "estimated_finish"}
_COLORS = {
    "green": {"succeeded", "processed", "active", "running", "live"},
    "red": {"failed", "error", "revoked", "away"},
    "yellow": {"paused", "cancelled", "pausing", "cancelling", "archived"},
}


class Form(StrEnum):
    """How data is printed."""

    TABLE = "table"
    JSON = "json"
    YAML = "yaml"
    NAME = "name"


class Output:
    """The streams of one command."""

    def __init__(self, form: Form, *, quiet: bool, color: bool):
        self.form = form
        self.quiet = quiet
        self._color = color

    def note(self, text: str) -> None:
        """Says something to a person, unless quiet."""
        if not self.quiet:
            sys.stdout.flush()
            typer.echo(text, err=True)

    def console(self, *, stderr: bool = True) -> "Console":
        """A stream for progress."""
        from rich.console import Console

        return Console(stderr=stderr, no_color=not self._color or None, highlight=False)

    @cached_property
    def progress(self) -> "Console | None":
        """Where progress is shown; None when quiet."""
        return None if self.quiet else self.console()

    @property
    def on_terminal(self) -> bool:
        """Whether a person reads the tables."""
        return self.form is Form.TABLE and sys.stdout.isatty()

    def items(self, items: Sequence[Item], columns: Columns) -> None:
        """Prints a list."""
        if self.on_terminal:
            self.console(stderr=False).print(self.table(items, columns))
        elif self.form is Form.TABLE:
            for line in aligned([list(columns), *cells(items, columns)]):
                typer.echo(line)
        elif self.form is Form.NAME:
            for item in items:
                typer.echo(item["id"])
        else:
            self._document(list(items))

    def item(self, item: Item) -> None:
        """Prints one object, whole."""
        if self.form is Form.TABLE:
            rows = [[f"{name}:", _told(name, value)] for name, value in item.items()]
            for line in aligned([row for row in rows if row[1]]):
                typer.echo(line)
        elif self.form is Form.NAME:
            typer.echo(item["id"])
        else:
            self._document(item)

    def stream(self, item: Item, line: str) -> None:
        """Prints one of a series that has no end yet: a line, or a document of its own."""
        if self.form is Form.TABLE:
            typer.echo(line)
        elif self.form is Form.NAME:
            typer.echo(item["id"])
        elif self.form is Form.JSON:
            typer.echo(json.dumps(item))
        else:
            typer.echo("---")
            self._document(item)

    def _document(self, document: Any) -> None:
        if self.form is Form.JSON:
            typer.echo(json.dumps(document, indent=2))
            return
        import yaml

        typer.echo(yaml.safe_dump(document, sort_keys=False, allow_unicode=True).rstrip())

    def table(self, items: Sequence[Item], columns: Columns) -> "Table":
        """A table for a terminal."""
        from rich.table import Table
        from rich.text import Text

        table = Table(box=None, pad_edge=False, header_style="bold")
        for header in columns:
            table.add_column(header, overflow="ellipsis", no_wrap=True)
        for row in cells(items, columns):
            table.add_row(*(Text(cell, style=_style(cell)) for cell in row))
        return table


def _style(cell: str) -> str:
    return next((color for color, words in _COLORS.items() if cell in words), "")


def cells(items: Sequence[Item], columns: Columns) -> list[list[str]]:
    """The text of every cell, safe for a terminal."""
    return [[printable(show(item)) or "-" for show in columns.values()] for item in items]


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Rows as lines whose columns are aligned, nothing cut off."""
    if not rows:
        return []
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]


def spelled(value: Any) -> str:
    """A value of an object on one line."""
    if value is None or value in ([], {}):
        return ""
    return printable(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))


def _told(name: str, value: Any) -> str:
    if isinstance(value, int) and (name.endswith("_at") or name in _MOMENTS):
        return moment(name)({name: value})
    return spelled(value)


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
