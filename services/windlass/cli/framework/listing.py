"""Lists: the newest items, and how many there are beyond those that are shown."""

from collections.abc import Iterable
from itertools import islice
from typing import Annotated

import typer

from windlass.cli.framework.calling import Call
from windlass.cli.framework.columns import Columns, Item

Limit = Annotated[int, typer.Option("--limit", min=1, help="Number of items to show at most.")]
All = Annotated[bool, typer.Option("--all", help="Show all items.")]
# Beyond this many it is only said that there are more.
COUNTED = 1000


def show_list(
    call: Call, items: Iterable[Item], columns: Columns, *, limit: int, everything: bool = False
) -> None:
    """Prints the first items, and tells how many more there are."""
    rest = iter(items)
    shown = list(rest if everything else islice(rest, limit))
    call.out.items(shown, columns)
    if call.out.quiet:
        return
    more = sum(1 for _ in islice(rest, COUNTED + 1))
    if more:
        number = f"More than {COUNTED}" if more > COUNTED else more
        call.out.note(f"{number} more; --all shows them.")
