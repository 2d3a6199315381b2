"""Faults of a file as a table, or within a document."""

from typing import TYPE_CHECKING

from windlass.cli.framework.columns import Item, field
from windlass.cli.framework.output import Output, OutputFormat

if TYPE_CHECKING:
    from windlass.datasets.faults import Faults

_SHOWN = 8


def as_items(faults: "Faults") -> list[Item]:
    """Each kind of fault as an object."""
    return [
        {
            "count": fault.count,
            "reason": str(fault.reason),
            "message": fault.message,
            "lines": fault.lines,
        }
        for fault in faults.kinds
    ]


def show_faults(out: Output, item: Item, key: str, *, of: str) -> None:
    """Prints an object whose `key` holds faults: as a document, or with a table of them."""
    if out.form is OutputFormat.NAME:
        out.item({"id": of})
        return
    if out.form is not OutputFormat.TABLE:
        out.item(item)
        return
    out.item({name: _flat(value) for name, value in item.items() if name != key})
    if item[key]:
        out.gap()
        out.items(
            item[key], {"COUNT": field("count"), "LINES": _lines, "FIRST MESSAGE": field("message")}
        )


def _lines(item: Item) -> str:
    """The first lines of a fault, and how many more there are."""
    shown = ", ".join(map(str, item["lines"][:_SHOWN]))
    more = item["count"] - len(item["lines"][:_SHOWN])
    if not shown:
        return "" if item["count"] == 1 else f"{item['count']} lines"
    return f"{shown}, +{more:,}" if more else shown


def _flat(value: object) -> object:
    """An object within an object on one line."""
    if not isinstance(value, dict):
        return value
    return ", ".join(f"{name} {each}" for name, each in value.items())
