"""`--watch`: a table that stays current on a terminal, elsewhere a line for each change."""

import time
from collections.abc import Callable
from typing import Annotated

import typer

from windlass.cli.framework.columns import Columns, Item, aligned, cells
from windlass.cli.framework.output import Output

Watch = Annotated[bool, typer.Option("--watch", "-w", help="Keep running and show changes.")]
Interval = Annotated[
    float, typer.Option("--interval", min=0.1, help="Seconds between two updates.")
]
Fetch = Callable[[], list[Item]]
Until = Callable[[list[Item]], bool]


def _never(_items: list[Item]) -> bool:
    return False


def watch(
    out: Output, fetch: Fetch, columns: Columns, *, interval_seconds: float, until: Until = _never
) -> None:
    """Shows what `fetch` answers, again and again, until `until` holds or Ctrl-C."""
    if out.on_terminal:
        _live(out, fetch, columns, interval_seconds, until)
    else:
        _lines(out, fetch, columns, interval_seconds, until)


def _live(
    out: Output, fetch: Fetch, columns: Columns, interval_seconds: float, until: Until
) -> None:
    from rich.live import Live

    items = fetch()
    with Live(out.table(items, columns), console=out.console(stderr=False)) as view:
        while not until(items):
            time.sleep(interval_seconds)
            items = fetch()
            view.update(out.table(items, columns))


def _lines(
    out: Output, fetch: Fetch, columns: Columns, interval_seconds: float, until: Until
) -> None:
    seen: dict[str, Item] = {}
    while True:
        items = fetch()
        changed = [item for item in items if seen.get(item["id"]) != item]
        for item in changed:
            out.stream(item, aligned(cells([item], columns))[0])
        seen = {item["id"]: item for item in items}
        if until(items):
            return
        time.sleep(interval_seconds)
