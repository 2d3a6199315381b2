"""Rows of a table as lines of JSON, in pages, so that memory is bounded and no query is long."""

import json
from collections.abc import AsyncIterator, Sequence
from typing import Any

import sqlalchemy as sa

from windlass.core.db import Database

# A page grows and shrinks towards so many bytes.
PAGE_BYTES = 1 << 20
FIRST_ROWS, MOST_ROWS = 50, 5000


class TableLines:
    """One reading of a table; `rows` counts what was read."""

    def __init__(
        self, database: Database, columns: Sequence[sa.Column[Any]], where: sa.ColumnElement[bool]
    ):
        self._database = database
        self._columns = columns
        self._where = where
        self._key = list(columns[0].table.primary_key)
        self.rows = 0

    async def __aiter__(self) -> AsyncIterator[bytes]:
        """Pages of whole lines, in the order of the primary key."""
        names = [column.name for column in self._columns]
        size, after = FIRST_ROWS, None
        while True:
            async with self._database.autocommit() as connection:
                rows = (await connection.execute(self._page(after, size))).all()
            told = [dict(zip(names, row, strict=False)) for row in rows]
            page = "".join(_line(one) for one in told).encode()
            self.rows += len(rows)
            if page:
                yield page
            if len(rows) < size:
                return
            after = rows[-1][len(names) :]
            size = max(1, min(MOST_ROWS, size * PAGE_BYTES // len(page)))

    def _page(self, after: Sequence[Any] | None, size: int) -> sa.Select[Any]:
        # The key once more, under names of its own: an export may not have all of it.
        key = [column.label(f"key_{number}") for number, column in enumerate(self._key)]
        query = sa.select(*self._columns, *key).where(self._where).order_by(*self._key).limit(size)
        if after is None:
            return query
        last = [
            sa.literal(value, column.type) for value, column in zip(after, self._key, strict=True)
        ]
        return query.where(sa.tuple_(*self._key) > sa.tuple_(*last))


def _line(row: dict[str, Any]) -> str:
    # Not orjson, which refuses integers that JSON of a tenant may have.
    return json.dumps(row, default=str, ensure_ascii=False) + "\n"
