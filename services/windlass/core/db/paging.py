"""Pages: of lists by cursor, and of changes that are too large for one message.

Of a list, `after` is the last id seen, `limit` is bounded, one row more tells `has_more`.
"""

from collections.abc import AsyncIterable, Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

import sqlalchemy as sa
from google.protobuf.message import Message

from windlass.core.errors import InvalidArgument

# No message of a stream of changes is larger than this, unless one item alone is.
STREAM_PAGE_BYTES = 1024 * 1024 - 16 * 1024
# Of an item in a repeated field, beside its bytes.
_FRAME_BYTES = 6

T = TypeVar("T")
M = TypeVar("M", bound=Message)


def page_size(limit: int, *, default: int = 20, most: int = 100) -> int:
    """The number of rows to answer; 0 asks for the default.

    Raises InvalidArgument outside 1 to `most`.
    """
    if limit == 0:
        return default
    if not 1 <= limit <= most:
        raise InvalidArgument(f"limit must be between 1 and {most}.", param="limit")
    return limit


def cut(rows: Sequence[T], size: int) -> tuple[list[T], bool]:
    """Splits a read of `size + 1` rows into the page and whether more follow."""
    return list(rows[:size]), len(rows) > size


def newest_first(
    query: sa.Select[Any],
    created_at: sa.Column[int],
    key: sa.Column[str],
    *,
    after: str,
    of: sa.ColumnElement[bool],
) -> sa.Select[Any]:
    """The rows of a query beyond the one with the key `after`, by creation, the latest first.

    The cursor is looked for among the rows that fulfil `of`; there are none beyond another one.
    """
    if after:
        cursor = sa.select(created_at).where(key == after, of).scalar_subquery()
        query = query.where(sa.tuple_(created_at, key) < sa.tuple_(cursor, sa.literal(after)))
    return query.order_by(created_at.desc(), key.desc())


def page_of(
    items: Sequence[T], key: Callable[[T], str], *, after: str, limit: int
) -> tuple[list[T], bool]:
    """The page of a list that is in memory whole, and whether more follow.

    Raises InvalidArgument for a cursor that is no item's key.
    """
    size, start = page_size(limit), 0
    if after:
        keys = [key(item) for item in items]
        if after not in keys:
            raise InvalidArgument("after must be the id of an item of this list.", param="after")
        start = keys.index(after) + 1
    return cut(items[start : start + size + 1], size)


def stream_pages(
    items: Iterable[M], most: int = STREAM_PAGE_BYTES
) -> Iterator[tuple[list[M], bool]]:
    """Cuts a change into pages of at most `most` bytes, each with whether more follow.

    Nothing is one empty page.
    """
    page: list[M] = []
    size = 0
    for item in items:
        cost = item.ByteSize() + _FRAME_BYTES
        if page and size + cost > most:
            yield page, True
            page, size = [], 0
        page.append(item)
        size += cost
    yield page, False


async def whole(parts: AsyncIterable[M], message: M) -> M:
    """Merges the parts of one answer into a message, which it returns."""
    async for part in parts:
        message.MergeFrom(part)
    return message
