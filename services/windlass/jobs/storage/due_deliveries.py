"""The deliveries to webhooks that are due, found by their index however many wait."""

import sqlalchemy as sa

from windlass.core.clock import now_ms
from windlass.jobs.storage.tables import deliveries


def due_deliveries(each: int) -> sa.Select[tuple[int, int]]:
    """Selects `id` and `not_before_ms` of the oldest due rows, so many of each webhook at most."""
    told, inner = _told(), deliveries.alias()
    first = (
        sa.select(inner.c.id, inner.c.not_before_ms)
        .where(inner.c.webhook_id == told.c.webhook_id, inner.c.not_before_ms <= now_ms())
        .order_by(inner.c.not_before_ms, inner.c.id)
        .limit(each)
        .lateral()
    )
    return sa.select(first.c.id, first.c.not_before_ms).select_from(told.join(first, sa.true()))


def _told() -> sa.CTE:
    """The webhooks that have a delivery, deleted ones too: one look into the index for each.

    DISTINCT would read every row.
    """
    first, after = deliveries.alias(), deliveries.alias()
    least = sa.select(sa.func.min(first.c.webhook_id).label("webhook_id"))
    told = least.cte("told", recursive=True)
    following = sa.select(sa.func.min(after.c.webhook_id)).where(
        after.c.webhook_id > told.c.webhook_id
    )
    return told.union_all(
        sa.select(following.scalar_subquery()).where(told.c.webhook_id.is_not(None))
    )
