"""Cursor pages: `after` is the last id seen, `limit` is bounded, one row more tells `has_more`."""

from collections.abc import Sequence
from typing import TypeVar

from windlass.core.errors import InvalidArgument

T = TypeVar("T")


def page_size(limit: int, *, default: int = 20, most: int = 100) -> int:
    """The number of rows to answer; 0 asks for the default.

    Raises InvalidArgument outside 1 to `most`.
    """
    if limit == 0:
        return default
    if not 1 <= limit <= most:
        raise InvalidArgument(f"limit must lie between 1 and {most}.", param="limit")
    return limit


def cut(rows: Sequence[T], size: int) -> tuple[list[T], bool]:
    """Splits a read of `size + 1` rows into the page and whether more follow."""
    return list(rows[:size]), len(rows) > size
