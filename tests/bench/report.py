"""The table, for a terminal and for the documentation."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

PAGE = Path(__file__).resolve().parents[2] / "docs" / "benchmarks.md"
BEGIN, END = "<!-- figures -->", "<!-- /figures -->"
_HEAD = ("name", "value", "unit", "goal", "met", "peer", "peer value", "ratio")


def number(value: float | None) -> str:
    """Three digits that matter; a thousand and more in whole."""
    if value is None:
        return ""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def _cells(line: Mapping[str, Any]) -> tuple[str, ...]:
    met = {True: "yes", False: "no", None: ""}[line["met"]]
    return (
        line["name"],
        number(line["value"]),
        line["unit"],
        line["goal"],
        met,
        line["peer"],
        number(line["peer_value"]),
        number(line["ratio"]),
    )


def table(lines: Iterable[Mapping[str, Any]]) -> str:
    """Aligned columns."""
    rows = [_HEAD, *map(_cells, lines)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    )


def markdown(lines: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """Rows for the documentation, with the circumstances of each line, by name."""
    rows = {}
    for line in lines:
        note = " (quick)" if line["quick"] else ""
        when = (line["date"][:16].replace("T", " ") + note, line["commit"])
        machine = line["machine"].partition(",")[0]
        cells = (*_cells(line), *when, machine, f"{line['busy_before']:.1f}")
        rows[line["name"]] = "| " + " | ".join(cells) + " |"
    return rows


def write_page(lines: Iterable[Mapping[str, Any]]) -> Path:
    """Replaces or adds these rows of the page's table; others stay."""
    before, _, rest = PAGE.read_text().partition(BEGIN)
    kept, _, after = rest.partition(END)
    head, rule, *old = [row for row in kept.splitlines() if row.startswith("|")]
    rows = {row.split(" | ")[0].removeprefix("| "): row for row in old} | markdown(lines)
    table_rows = "\n".join([head, rule, *rows.values()])
    PAGE.write_text(f"{before}{BEGIN}\n{table_rows}\n{END}{after}")
    return PAGE
