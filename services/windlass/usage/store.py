"""Every query on usage records."""

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

import msgspec
import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert

from windlass.core.db import Database, metadata
from windlass.core.killpoints import reach
from windlass.usage.domain import Query, UsageRecord

# No row refers to another, and every query but an insert is bound by time: the
# table can be cut into ranges of `at_ms` when it outgrows one.
records = sa.Table(
    "usage_records",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("at_ms", sa.BigInteger, nullable=False),
    *(
        sa.Column(name, sa.Text, nullable=False)
        for name in ("organization_id", "project_id", "user_id", "key_id", "model")
    ),
    sa.Column("kind", sa.SmallInteger, nullable=False),
    sa.Column("input_tokens", sa.BigInteger, nullable=False),
    sa.Column("output_tokens", sa.BigInteger, nullable=False),
    sa.Column("duration_ms", sa.Integer, nullable=False),
    sa.Column("time_to_first_token_ms", sa.Integer, nullable=False),
    sa.Column("status", sa.SmallInteger, nullable=False),
    # Processes of the release before write none of these.
    sa.Column("input_cached_tokens", sa.BigInteger, nullable=False, server_default="0"),
    sa.Column("output_reasoning_tokens", sa.BigInteger, nullable=False, server_default="0"),
    sa.Column("estimated", sa.Boolean, nullable=False, server_default=sa.false()),
    sa.Column("device_time_ms", sa.BigInteger, nullable=False, server_default="0"),
    sa.Index(None, "organization_id", "at_ms"),
    sa.Index(None, "project_id", "at_ms"),
    sa.Index(None, "at_ms"),
)
HOUR_MS = 3_600_000
SUMMED_BY = ("organization_id", "project_id", "user_id", "key_id", "model", "kind")
AMOUNTS = (
    "input_tokens", "output_tokens", "input_cached_tokens", "output_reasoning_tokens",
    "device_time_ms",
)  # fmt: skip
COUNTS = ("requests", "estimated_requests")
# Sums of records that are kept no longer; no record is in both tables.
hours = sa.Table(
    "usage_hours",
    metadata,
    sa.Column("starts_at_ms", sa.BigInteger, primary_key=True),
    *(sa.Column(name, sa.Text, primary_key=True) for name in SUMMED_BY[:-1]),
    sa.Column("kind", sa.SmallInteger, primary_key=True),
    *(
        sa.Column(name, sa.BigInteger, nullable=False)
        for name in ("input_tokens", "output_tokens", "requests")
    ),
    *(
        sa.Column(name, sa.BigInteger, nullable=False, server_default="0")
        for name in (*AMOUNTS[2:], "estimated_requests")
    ),
    sa.Index(None, "organization_id", "starts_at_ms"),
)


_columns = [sa.column(column.name, column.type) for column in records.columns]
_rows = (
    sa.func.json_to_recordset(sa.cast(sa.bindparam("rows", type_=sa.Text), sa.JSON))
    .table_valued(*_columns, name="rows")
    .render_derived(with_types=True)
)
_APPEND = (
    insert(records)
    .from_select([column.name for column in _columns], sa.select(_rows))
    .on_conflict_do_nothing(index_elements=["id"])
)


# What one record counts for.
_ONE = (
    sa.literal(1, sa.BigInteger),
    sa.cast(sa.cast(records.c.estimated, sa.Integer), sa.BigInteger),
)


class UsageStore:
    """Usage records."""

    def __init__(self, database: Database):
        self._database = database

    async def append(self, rows: Iterable[UsageRecord]) -> None:
        """Adds records; one that is there already is left as it is."""
        # One parameter for the whole batch: a parameter per value costs the client
        # forty times the CPU, in a process that may be the gateway's as well.
        document = msgspec.json.encode(list(rows)).decode()
        async with self._database.begin() as connection:
            await connection.execute(_APPEND, {"rows": document})
            reach("usage.written")

    async def query(self, query: Query) -> dict[int, list[Any]]:
        """Sums by start of bucket; a bucket without records is absent.

        What was summed by the hour lies in the first minute of its hour.
        """
        width_ms = query.width * 1000
        # One statement sees each record once, in the one table or in the other.
        both = sa.union_all(
            _within(query, records, records.c.at_ms, _ONE),
            _within(query, hours, hours.c.starts_at_ms, [hours.c[name] for name in COUNTS]),
        ).subquery()
        bucket = (both.c.at // width_ms * query.width).label("bucket")
        groups = [both.c[name] for name in query.group_by]
        sums = [sa.func.sum(both.c[name]).label(name) for name in (*AMOUNTS, *COUNTS)]
        statement = (
            sa.select(bucket, *groups, *sums).group_by(bucket, *groups).order_by(bucket, *groups)
        )
        found: defaultdict[int, list[Any]] = defaultdict(list)
        async with self._database.autocommit() as connection:
            for row in await connection.execute(statement):
                found[row.bucket].append(row)
        return found


def _within(
    query: Query, table: sa.Table, at: sa.Column[int], counts: Iterable[sa.ColumnElement[int]]
) -> sa.Select[Any]:
    return sa.select(
        at.label("at"),
        *(table.c[name] for name in (*SUMMED_BY, *AMOUNTS)),
        *(count.label(name) for name, count in zip(COUNTS, counts, strict=True)),
    ).where(
        table.c.organization_id == query.organization_id,
        at >= query.start * 1000,
        at < query.page_end * 1000,
        *(table.c[name].in_(values) for name, values in query.filters.items()),
    )
