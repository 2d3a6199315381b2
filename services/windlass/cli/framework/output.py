"""Output of a command: data on stdout in the requested form, everything else on stderr."""

import json
import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from enum import StrEnum
from typing import TYPE_CHECKING, Any

import typer

from windlass.cli.framework.columns import (
    Columns,
    Item,
    aligned,
    cells,
    painted,
    style,
    unpainted,
)
from windlass.cli.framework.fitting import fitted
from windlass.cli.framework.objects import object_lines

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from rich.console import Console
    from rich.table import Table

    from windlass.client.display.waiting import WaitingLine
    from windlass.client.resources.files import Progress


class OutputFormat(StrEnum):
    """Forms in which data is printed."""

    TABLE = "table"
    WIDE = "wide"
    JSON = "json"
    YAML = "yaml"
    NAME = "name"


class Output:
    """The streams of one command."""

    def __init__(self, form: OutputFormat, *, quiet: bool, color: bool):
        self.form = form
        self.quiet = quiet
        self._color = color
        # A terminal holds one thing that changes in place.
        self._draws = False

    def note(self, text: str) -> None:
        """Says something to a person, unless quiet."""
        if not self.quiet:
            sys.stdout.flush()
            typer.echo(text, err=True)

    def console(self, *, stderr: bool = True) -> "Console":
        """A stream for progress."""
        self._draws = True
        return self._console(stderr=stderr)

    def _console(self, *, stderr: bool = True) -> "Console":
        from rich.console import Console

        # What a tenant names may hold `:ticket:` and `[red]`, and is no markup.
        return Console(
            stderr=stderr,
            no_color=not self._color or None,
            highlight=False,
            markup=False,
            emoji=False,
        )

    @contextmanager
    def transfer(self, title: str, total: int) -> "Iterator[Progress]":
        """A bar of bytes that go by; nothing is shown when quiet."""
        from windlass.client.display.progress import transfer

        with self._drawing(), transfer(title, total, None if self.quiet else self._console()) as it:
            yield it

    @contextmanager
    def waiting(self, reason: str, total: int | None = None) -> "Iterator[WaitingLine]":
        """A line on a terminal about a wait, with a bar where the bytes of the work are known.

        Nothing is shown elsewhere, or when quiet.
        """
        with self._drawing(), self._waiting_line(reason, total) as line:
            yield line

    def awaiting(self, reason: str) -> "AbstractContextManager[object]":
        """The same for a call, unless the command draws something itself."""
        return nullcontext() if self._draws else self._waiting_line(reason, None)

    @contextmanager
    def _drawing(self) -> Iterator[None]:
        before, self._draws = self._draws, True
        try:
            yield
        finally:
            self._draws = before

    def _waiting_line(
        self, reason: str, total: int | None
    ) -> "AbstractContextManager[WaitingLine]":
        from windlass.client.display.waiting import waiting

        shown = not self.quiet and sys.stderr.isatty()
        return waiting(self._console if shown else None, reason, total)

    @property
    def is_table(self) -> bool:
        """True if people, and not programs, are meant to read the output."""
        return self.form in (OutputFormat.TABLE, OutputFormat.WIDE)

    @property
    def on_terminal(self) -> bool:
        """True if a person reads the tables."""
        return self.is_table and sys.stdout.isatty()

    def items(self, items: Sequence[Item], columns: Columns) -> None:
        """Prints a list; a table is cut to the terminal's width unless it is to be wide."""
        if self.is_table:
            paint = painted if self._color and sys.stdout.isatty() else unpainted
            rows = [list(columns), *cells(items, columns)]
            left_out: list[str] = []
            if self.form is OutputFormat.TABLE and sys.stdout.isatty():
                rows, left_out = fitted(rows, shutil.get_terminal_size().columns)
            for line in aligned(rows, paint):
                typer.echo(line)
            if left_out and items:
                self.note(f"Not shown: {', '.join(left_out)}; `-o wide` shows all columns.")
        elif self.form is OutputFormat.NAME:
            for item in items:
                typer.echo(item["id"])
        else:
            self._document(list(items))

    def item(self, item: Item) -> None:
        """Prints one object, whole."""
        if self.is_table:
            width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
            for line in object_lines(item, width):
                typer.echo(line)
        elif self.form is OutputFormat.NAME:
            typer.echo(item["id"])
        else:
            self._document(item)

    def gap(self) -> None:
        """Sets two tables apart."""
        typer.echo()

    def stream(self, item: Item, line: str) -> None:
        """Prints one of a series that has no end yet: a line, or a document of its own."""
        if self.is_table:
            typer.echo(line)
        elif self.form is OutputFormat.NAME:
            typer.echo(item.get("id", line))
        elif self.form is OutputFormat.JSON:
            typer.echo(json.dumps(item))
        else:
            typer.echo("---")
            self._document(item)

    def _document(self, document: Any) -> None:
        if self.form is OutputFormat.JSON:
            typer.echo(json.dumps(document, indent=2))
            return
        import yaml

        typer.echo(yaml.safe_dump(document, sort_keys=False, allow_unicode=True).rstrip())

    def table(self, items: Sequence[Item], columns: Columns) -> "Table":
        """A table that fits a terminal, and shows the first column whole."""
        from rich.table import Table
        from rich.text import Text

        table = Table(box=None, pad_edge=False, header_style="bold")
        rows = cells(items, columns)
        for index, header in enumerate(columns):
            width = max((len(row[0]) for row in rows), default=0) if index == 0 else None
            table.add_column(header, overflow="ellipsis", no_wrap=True, min_width=width)
        for row in rows:
            table.add_row(*(Text(cell, style=style(cell)) for cell in row))
        return table
