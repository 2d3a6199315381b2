"""The tables of feeds, and the queries of who sets them and of who keeps answers."""

from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import JSONB, insert
from sqlalchemy.ext.asyncio import AsyncConnection

from windlass.core.db import Database, metadata
from windlass.core.db.leases import lease_columns, no_rows
from windlass.core.db.paging import newest_first
from windlass.core.errors import NotFound
from windlass.core.rpc import audited
from windlass.core.rpc.auth import Principal
from windlass.inference.feeds.feed import FedAnswer, Feed
from windlass.inference.loads import CLOCK

# Of one feed; what comes beyond is not kept.
MAX_ANSWERS, MAX_BYTES = 1000, 64 * 2**20
# Counters and times, which no request sets.
_COUNTED = ("spent", "kept", "refused", "trained", "removed", "turned_away", "message")

feeds = sa.Table(
    "inference_feeds",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("organization_id", sa.Text, nullable=False, index=True),
    sa.Column("project_id", sa.Text, nullable=False),
    sa.Column("user_id", sa.Text, nullable=False),
    sa.Column("key_id", sa.Text, nullable=False),
    sa.Column("model", sa.Text, nullable=False),
    sa.Column("key_ids", JSONB, nullable=False),
    sa.Column("grader", sa.LargeBinary, nullable=False),
    sa.Column("least_score", sa.Double, nullable=False),
    sa.Column("hourly", sa.BigInteger, nullable=False),
    sa.Column("batch", sa.BigInteger, nullable=False),
    sa.Column("optimizer", sa.Text, nullable=False),
    sa.Column("learning_rate", sa.Double, nullable=False),
    sa.Column("guard", sa.LargeBinary, nullable=False),
    # Times at which answers were taken for a training within the last hour, and how many.
    sa.Column("spent", JSONB, nullable=False),
    sa.Column("kept", sa.BigInteger, nullable=False),
    sa.Column("refused", sa.BigInteger, nullable=False),
    sa.Column("trained", sa.BigInteger, nullable=False),
    sa.Column("removed", sa.BigInteger, nullable=False),
    sa.Column("turned_away", sa.BigInteger, nullable=False),
    sa.Column("message", sa.Text, nullable=False),
    sa.Column("created_at", sa.Double, nullable=False),
    sa.Column("updated_at", sa.Double, nullable=False),
    # When it is looked at next, and before when new answers do not hasten that.
    sa.Column("due_at", sa.Double, nullable=False),
    sa.Column("retry_at", sa.Double, nullable=False),
    *lease_columns(),
    sa.UniqueConstraint("project_id", "model"),
    sa.Index("ix_inference_feeds_due_at", "due_at"),
)
answers = sa.Table(
    "inference_fed_answers",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("feed_id", sa.Text, nullable=False),
    sa.Column("project_id", sa.Text, nullable=False, index=True),
    sa.Column("key_id", sa.Text, nullable=False),
    # What a grader reads; empty once it is graded.
    sa.Column("text", sa.Text, nullable=False),
    sa.Column("item", sa.LargeBinary, nullable=False),
    sa.Column("sample", sa.LargeBinary, nullable=False),
    sa.Column("bytes", sa.BigInteger, nullable=False),
    sa.Column("score", sa.Double),
    # Of the training that it was taken for; empty until then.
    sa.Column("training_key", sa.Text, nullable=False),
    sa.Column("created_at", sa.Double, nullable=False),
    sa.Index("ix_inference_fed_answers_feed", "feed_id", "created_at", "id"),
)


def to_feed(row: Any) -> Feed:
    """A row as a feed."""
    values = {one.name: getattr(row, one.name) for one in fields(Feed)}
    values |= {"key_ids": tuple(row.key_ids), "spent": tuple((at, n) for at, n in row.spent)}
    return Feed(**values)


async def locked(
    connection: AsyncConnection, feed_id: str, *where: sa.ColumnElement[bool]
) -> Feed | None:
    """A feed as it is now, which nobody else changes until the transaction ends."""
    query = feeds.select().where(feeds.c.id == feed_id, *where).with_for_update()
    row = (await connection.execute(query)).first()
    return None if row is None else to_feed(row)


async def removed(connection: AsyncConnection, feed_id: str, *where: sa.ColumnElement[bool]) -> int:
    """Removes answers of a feed; returns how many."""
    gone = await connection.execute(answers.delete().where(answers.c.feed_id == feed_id, *where))
    return gone.rowcount


class FeedStore:
    """Feeds of every project."""

    def __init__(self, database: Database):
        self._database = database
        self.is_empty = no_rows(database, feeds.c.id != "")

    async def put(self, feed: Feed) -> None:
        """Sets a feed; answers of keys that it does not name any more are removed."""
        values = {one.name: getattr(feed, one.name) for one in fields(Feed)}
        values |= {"key_ids": list(feed.key_ids), "spent": list(feed.spent)}
        async with self._database.begin() as connection:
            statement = insert(feeds).values(
                values | {"created_at": CLOCK, "updated_at": CLOCK, "due_at": CLOCK, "retry_at": 0}
            )
            same = feeds.c.project_id == feed.project_id, feeds.c.model == feed.model
            query = feeds.select().where(*same).with_for_update()
            row = (await connection.execute(query)).first()
            former = None if row is None else to_feed(row)
            audited.change(_said(former), _said(feed), resource=feed.model)
            if former is None:
                # Who is second sets it anew.
                statement = statement.on_conflict_do_update(
                    index_elements=["project_id", "model"], set_=_settings(values)
                )
                await connection.execute(statement)
                return
            others = answers.c.key_id.not_in(feed.key_ids)
            gone = await removed(connection, former.id, others)
            changed = _settings(values) | {"removed": feeds.c.removed + gone, "due_at": CLOCK}
            await connection.execute(feeds.update().where(*same).values(changed))

    async def get(self, caller: Principal, model: str) -> tuple[Feed, int]:
        """A feed of the caller's project and the answers that wait in it; raises NotFound."""
        found = await self._read(feeds.select().where(_own(caller), feeds.c.model == model))
        if not found:
            raise feed_not_found(model)
        return found[0]

    async def newest(
        self, caller: Principal, *, after: str, limit: int
    ) -> Sequence[tuple[Feed, int]]:
        """The feeds of the caller's project, newest first, with the answers that wait in each."""
        own = _own(caller)
        query = newest_first(
            feeds.select().where(own), feeds.c.created_at, feeds.c.id, after=after, of=own
        )
        return await self._read(query.limit(limit))

    async def delete(self, caller: Principal, model: str) -> None:
        """Ends a feed of the caller's project with all that it has; raises NotFound."""
        async with self._database.begin() as connection:
            own = feeds.delete().where(_own(caller), feeds.c.model == model).returning(feeds)
            row = (await connection.execute(own)).first()
            if row is None:
                raise feed_not_found(model)
            await removed(connection, row.id)
            audited.change(_said(to_feed(row)), None, resource=model)

    async def find(self, project_id: str, model: str) -> Feed | None:
        """The feed of a project's model; None where there is none."""
        return await self._one(project_id, feeds.c.model == model)

    async def find_id(self, project_id: str, feed_id: str) -> Feed | None:
        """A project's feed by its id; None where there is none."""
        return await self._one(project_id, feeds.c.id == feed_id)

    async def keep(
        self, feed_id: str, project_id: str, key_id: str, found: Sequence[FedAnswer]
    ) -> int:
        """Keeps answers as far as there is room; returns how many, of those kept before too."""
        async with self._database.begin() as connection:
            feed = await locked(connection, feed_id, feeds.c.project_id == project_id)
            if feed is None or key_id not in feed.key_ids:
                return 0
            ids = sa.select(answers.c.id).where(answers.c.id.in_([one.id for one in found]))
            known = set((await connection.execute(ids)).scalars())
            new = [one for one in found if one.id not in known]
            rows = [_row_of(feed, one) for one in await _room(connection, feed_id, new)]
            if rows:
                await connection.execute(answers.insert().values(created_at=CLOCK), rows)
            soon = sa.func.least(feeds.c.due_at, sa.func.greatest(feeds.c.retry_at, CLOCK))
            values = {
                "kept": feeds.c.kept + len(rows),
                "turned_away": feeds.c.turned_away + len(new) - len(rows),
                "due_at": soon,
            }
            await connection.execute(feeds.update().where(feeds.c.id == feed_id).values(values))
            return len(known) + len(rows)

    async def _one(self, project_id: str, which: sa.ColumnElement[bool]) -> Feed | None:
        query = feeds.select().where(feeds.c.project_id == project_id, which)
        async with self._database.autocommit() as connection:
            row = (await connection.execute(query)).first()
        return None if row is None else to_feed(row)

    async def _read(self, query: sa.Select[Any]) -> list[tuple[Feed, int]]:
        async with self._database.autocommit() as connection:
            found = [to_feed(row) for row in await connection.execute(query)]
            counts = (
                sa.select(answers.c.feed_id, sa.func.count())
                .where(answers.c.feed_id.in_([one.id for one in found]))
                .group_by(answers.c.feed_id)
            )
            waiting = {row[0]: int(row[1]) for row in await connection.execute(counts)}
        return [(one, waiting.get(one.id, 0)) for one in found]


async def _room(
    connection: AsyncConnection, feed_id: str, new: Sequence[FedAnswer]
) -> list[FedAnswer]:
    """Returns those of some answers that a feed has room for."""
    query = sa.select(sa.func.count(), sa.func.coalesce(sa.func.sum(answers.c.bytes), 0))
    count, size = (await connection.execute(query.where(answers.c.feed_id == feed_id))).one()
    kept: list[FedAnswer] = []
    for one in new:
        size += _bytes_of(one)
        if count + len(kept) < MAX_ANSWERS and size <= MAX_BYTES:
            kept.append(one)
    return kept


def _bytes_of(answer: FedAnswer) -> int:
    return len(answer.text.encode()) + len(answer.item) + len(answer.sample)


def _row_of(feed: Feed, answer: FedAnswer) -> dict[str, Any]:
    return {
        "id": answer.id,
        "feed_id": feed.id,
        "project_id": feed.project_id,
        "key_id": answer.key_id,
        "text": answer.text,
        "item": answer.item,
        "sample": answer.sample,
        "bytes": _bytes_of(answer),
        "training_key": "",
    }


def _own(caller: Principal) -> sa.ColumnElement[bool]:
    ours = feeds.c.project_id == caller.require_project()
    if caller.models is not None:
        ours = sa.and_(ours, caller.models.condition(feeds.c.model))
    return ours


def _settings(values: dict[str, Any]) -> dict[str, Any]:
    """Columns that a request sets of a feed that is there."""
    fixed = {"id", "organization_id", "project_id", "model", "created_at", *_COUNTED}
    return {name: one for name, one in values.items() if name not in fixed} | {"updated_at": CLOCK}


def _said(feed: Feed | None) -> Feed | None:
    """The feed as the audit log has it: without text of anybody's."""
    return None if feed is None else replace(feed, grader=b"", guard=b"", spent=())


def feed_not_found(model: str) -> NotFound:
    """The refusal of a model that has no feed."""
    return NotFound(f"{model[:256]!r} has no feed.", reason="feed_not_found", param="model")
