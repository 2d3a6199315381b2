"""Pages: of lists by cursor, and of changes that are too large for one message.

Of a list, `after` is the last id seen, `limit` is bounded, one row more tells `has_more`.
"""

from collections.abc import AsyncIterable, Awaitable, Callable, Iterable, Iterator, Sequence
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


def page_size(limit: int, *, default: int = 20, max_limit: int = 100) -> int:
    """The number of rows to answer; 0 asks for the default.

    Raises InvalidArgument outside 1 to `max_limit`.
    """
    if limit == 0:
        return default
    if not 1 <= limit <= max_limit:
        raise InvalidArgument(f"limit must be between 1 and {max_limit}.", param="limit")
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
    """The rows of a query as `by_creation`, the latest first."""
    return by_creation(query, created_at, key, after=after, of=of, oldest_first=False)


def by_creation(
    query: sa.Select[Any],
    created_at: sa.Column[int],
    key: sa.Column[str],
    *,
    after: str,
    of: sa.ColumnElement[bool],
    oldest_first: bool,
) -> sa.Select[Any]:
    """The rows of a query beyond the one with the key `after`, by creation.

    The cursor is looked for among the rows that fulfil `of`; there are none beyond another one.
    """
    if after:
        cursor = sa.select(created_at).where(key == after, of).scalar_subquery()
        place, found = sa.tuple_(created_at, key), sa.tuple_(cursor, sa.literal(after))
        query = query.where(place > found if oldest_first else place < found)
    if oldest_first:
        return query.order_by(created_at, key)
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


def fitting(items: Iterable[M], more: bool) -> tuple[list[M], bool]:
    """Returns the first items of a page, as many as one message may hold, and whether more follow.

    That is one at least, and all where they are not large.
    """
    page, left_out = next(stream_pages(items))
    return page, more or left_out


async def read_fitting(
    read: Callable[[str, int], Awaitable[Sequence[T]]],
    message: Callable[[T], M],
    cursor: Callable[[M], str],
    *,
    after: str,
    size: int,
    at_once: int,
) -> tuple[list[M], bool]:
    """Returns a page as `fitting` does, of rows that are read so many at once.

    So what one message cannot hold is hardly read. `read` takes the cursor and the number of rows.
    """
    page: list[M] = []
    more = True
    while more and len(page) < size:
        step = min(at_once, size - len(page))
        rows, more = cut(await read(after, step + 1), step)
        page += map(message, rows)
        fit, left_out = fitting(page, more)
        if len(fit) < len(page):
            return fit, left_out
        after = cursor(page[-1]) if page else after
    return page, more


def stream_pages(
    items: Iterable[M], max_bytes: int = STREAM_PAGE_BYTES
) -> Iterator[tuple[list[M], bool]]:
    """Cuts a change into pages of at most `max_bytes`, each with whether more follow.

    Nothing is one empty page.
    """
    page: list[M] = []
    size = 0
    for item in items:
        cost = item.ByteSize() + _FRAME_BYTES
        if page and size + cost > max_bytes:
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
